"""Run files from any source: each is drawn, or refused in one sentence."""

import copy
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotloop.cli import report
from hotloop.errors import RunError
from hotloop.loop import run as run_files
from hotloop.loop.run import Run, load
from hotloop.report.kinds import KINDS
from hotloop.results.saved import open_run
from hotloop.simplify.rare_work import REST
from support.every_run import MAKERS, OUTPUTS, simulated, trained

# Values that an editor or a fault may put in place of any other.
ODD: list[Any] = [None, "", "word", -1, 0, 1, 1e300, -0.5, float("nan"), float("inf"), [], {}, True]
ODD += [[1, "a"], {"a": 1}, 2**70, -(2**70)]
FEW, MANY = 40, 350  # edits of each verb's run


@pytest.fixture(scope="module", params=MAKERS)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MAKERS[request.param]().save(tmp_path_factory.mktemp("runs") / f"{request.param}.run")


def draw(path: Path, *options: str) -> str | None:
    """Draw a run as the command does; why it was refused, if it was."""
    try:
        code = report.run([str(path), *options])
    except RunError as refused:
        said = str(refused)
    else:
        assert code == 0
        return None
    assert "\n" not in said
    return said


def test_every_kind_of_run_is_tested_here() -> None:
    assert set(KINDS) == set(MAKERS)


def test_a_run_is_drawn_as_it_was_saved(saved: Path, tmp_path: Path) -> None:
    assert draw(saved) is None
    assert draw(saved, "--json") is None
    assert draw(saved, "--html", str(tmp_path / "page.html")) is None


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a tree of JSON."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = [path] if path else []
    for key, part in inner:
        here = (*path, key)
        found += places(part, here) if isinstance(part, dict | list) else [here]
    return found


def edited(content: Run, rng: np.random.Generator) -> tuple[Run, str]:
    """A run with one or two odd things in it, and what they are."""
    run = copy.deepcopy(content)
    said = []
    for _ in range(int(rng.integers(1, 3))):
        if run.arrays and rng.random() < 0.4:
            said.append(_edit_array(run, rng))
            continue
        parts = {"settings": run.settings, "facts": run.facts, "host": run.host}
        spots = places(parts)
        *way, last = spots[int(rng.integers(len(spots)))]
        owner: Any = parts
        for key in way:
            owner = owner[key]
        if not way or (isinstance(owner, dict) and rng.random() < 0.3):
            if way:
                del owner[last]
            said.append(f"without {way} {last}")
            continue
        owner[last] = ODD[int(rng.integers(len(ODD)))]
        said.append(f"{way} {last} = {owner[last]!r}")
    return run, "; ".join(said)


def _edit_array(run: Run, rng: np.random.Generator) -> str:
    name = sorted(run.arrays)[int(rng.integers(len(run.arrays)))]
    array = run.arrays[name]
    kind = int(rng.integers(7))
    if kind == 0 or array.dtype.kind == "U":
        del run.arrays[name]
    elif kind == 1:
        run.arrays[name] = array[: len(array) // 2]
    elif kind == 2:
        run.arrays[name] = array[..., None]
    elif kind == 3:
        run.arrays[name] = array.astype("U8")
    elif kind == 4:
        run.arrays[name] = np.where(rng.random(array.shape) < 0.3, np.nan, array)
    elif kind == 5:
        run.arrays[name] = -array.astype(np.float64) * 1e30
    else:
        run.arrays[name] = array[:0]
    return f"{name}, edit {kind}"


def check_edits(saved: Path, tmp_path: Path, count: int, seed: int) -> None:
    content = load(saved)
    rng = np.random.default_rng(seed)
    refused = 0
    for number in range(count):
        run, said = edited(content, rng)
        path = run.save(tmp_path / "edited.run")
        options = ["--html", str(tmp_path / "page.html")] if number % 10 == 9 else []
        try:
            refused += draw(path, *options) is not None
        except Exception as error:
            raise AssertionError(f"edit {number}: {said}") from error
    assert refused > count // 10


def test_an_edited_run_is_drawn_or_refused(saved: Path, tmp_path: Path) -> None:
    check_edits(saved, tmp_path, FEW, seed=0)


@pytest.mark.slow
def test_two_thousand_edited_runs_are_drawn_or_refused(saved: Path, tmp_path: Path) -> None:
    check_edits(saved, tmp_path, MANY, seed=1)


def test_what_was_wrong_is_said(tmp_path: Path) -> None:
    run = trained()
    run.settings, run.facts["threshold"] = {}, "high"
    path = run.save(tmp_path / "a.run")
    with pytest.raises(RunError, match="facts: threshold: str did not match"):
        open_run(path)
    run = trained()
    run.arrays["seconds"] = run.arrays["seconds"][:2]
    with pytest.raises(RunError, match="arrays: seconds: expected 4 n, got 2"):
        open_run(run.save(path))
    run = simulated()
    run.settings["seed"] = -3
    with pytest.raises(RunError, match=r"settings: seed: expected a number 0 or more, got -3"):
        open_run(run.save(path))


@pytest.mark.parametrize(
    ("outputs", "why"),
    [
        ([], "outputs: expected one at least"),
        ([OUTPUTS[0], OUTPUTS[0]], "outputs: expected each name once"),
        ([OUTPUTS[0], OUTPUTS[1] | {"label": "infections"}], "expected each label once"),
        ([OUTPUTS[0] | {"share_of": "immune"}, OUTPUTS[1]], "share_of: expected one of"),
        ([OUTPUTS[0] | {"colour": 20}, OUTPUTS[1]], "colour: expected 0 to 19, got 20"),
        ([OUTPUTS[0] | {"kind": "rate"}, OUTPUTS[1]], "outputs: value of key 'kind' of item 0"),
        ([OUTPUTS[0], OUTPUTS[1] | {"name": "other"}], "arrays: it has no 'other'"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(
    outputs: list[dict[str, Any]], why: str, tmp_path: Path
) -> None:
    run = simulated()
    run.facts["outputs"] = outputs
    with pytest.raises(RunError, match=why):
        open_run(run.save(tmp_path / "a.run"))


@pytest.mark.parametrize("saved", ["simplify"], indirect=True)
def test_rare_work_of_another_stage_is_refused(saved: Path, tmp_path: Path) -> None:
    run = load(saved)
    (rest,) = [kind for kind in run.facts["kinds"] if kind["name"] == REST]
    rest["index"] = 0
    with pytest.raises(RunError, match="kinds: the rest: index: expected -1, got 0"):
        open_run(run.save(tmp_path / "a.run"))


def test_a_simulation_without_a_step_is_refused(tmp_path: Path) -> None:
    run = simulated()
    run.arrays = {name: array[:, :0] for name, array in run.arrays.items()}
    with pytest.raises(RunError, match="expected one run and one step at least"):
        open_run(run.save(tmp_path / "a.run"))


@pytest.mark.parametrize("part", ["host", "settings", "facts", "verb", "complete"])
def test_a_header_of_other_types_is_refused(part: str, tmp_path: Path) -> None:
    path = trained().save(tmp_path / "a.run")
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(content["run.json"])
    header[part] = None
    content["run.json"] = json.dumps(header).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    with pytest.raises(RunError, match=f"edited or damaged: {part}: expected a"):
        load(path)


def test_a_run_that_unpacks_to_more_than_any_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_files, "MAX_BYTES", 1 << 20)
    path = tmp_path / "bomb.run"
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(1 << 18))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("run.json", "not even JSON")
        archive.writestr("zeros.npy", buffer.getvalue())
    with pytest.raises(RunError, match=r"unpacks to 0.0 GiB: expected at most"):
        load(path)


def test_an_array_whose_header_gives_a_larger_size_is_refused(tmp_path: Path) -> None:
    path = trained().save(tmp_path / "a.run")
    with zipfile.ZipFile(path, "a") as archive:
        promise = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"
        promise = promise.ljust(117) + b"\n"
        data = b"\x93NUMPY\x01\x00" + len(promise).to_bytes(2, "little") + promise
        archive.writestr("more.npy", data)
    with pytest.raises(RunError, match="cut short or damaged"):
        load(path)
