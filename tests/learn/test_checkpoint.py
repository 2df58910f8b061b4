"""Checkpoints: what is written is read again, and nothing else is ever accepted or run."""

import copy
import dataclasses
import io
import json
import math
import pickle
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hotloop.errors import CheckpointError
from hotloop.learn import checkpoint as checkpoints
from hotloop.learn.checkpoint import load_checkpoint, save_checkpoint
from hotloop.learn.policies.saved_policy import evaluate, saved_policy
from hotloop.learn.ppo import PPO, PPOSettings
from hotloop.learn.training import train

SMALL = PPOSettings(
    num_envs=2, fragment_steps=8, epochs=1, hidden_size=2, hidden_layers=1, total_steps=32,
    evaluate_every=16,
)  # fmt: skip
HEADER = "checkpoint.json"
BAD = (
    *(None, True, -1, 0.5, 2**70, "x", "", [], {}, [[]], {"npy": "state.x.npy"}),
    *({"npy": 3}, math.nan, math.inf, -math.inf, [None], {"a": 1}),
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint") / "a.checkpoint"
    train(SMALL, checkpoint=path)
    return path


@pytest.fixture(scope="module")
def learner():
    learner = PPO(SMALL)
    yield learner
    learner.close()


def entries_of(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(path, entries, compression=zipfile.ZIP_STORED):
    """A checkpoint of other entries; several of one name where `entries` are pairs."""
    other = path.with_name("edited.checkpoint")
    with zipfile.ZipFile(other, "w", compression) as archive:
        for name, data in entries.items() if isinstance(entries, dict) else entries:
            archive.writestr(name, data)
    return other


def with_header(path, change):
    """A checkpoint whose header was changed in place."""
    entries = entries_of(path)
    header = json.loads(entries[HEADER])
    change(header)
    return rewritten(path, {**entries, HEADER: json.dumps(header)})


def array_bytes(array, **options):
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def same(one, other):
    """Whether two values of a checkpoint are equal, NaN and arrays included."""
    if dataclasses.is_dataclass(one):
        return type(one) is type(other) and same(vars(one), vars(other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return one == other or (one != one and other != other)


def refused_or_same(file, whole):
    """Reading it gives what was saved, or one sentence; whether it is the same."""
    found, problem = None, ""
    try:
        found = load_checkpoint(file)
    except CheckpointError as error:
        problem = str(error)
    assert same(found, whole) if found else problem.startswith(str(file))
    assert "\n" not in problem
    return found is not None


def test_what_was_saved_is_read_again(path, tmp_path):
    found = load_checkpoint(path)
    assert found.settings.env_id == "CartPole-v1"
    assert math.isnan(found.settings.target_return)
    assert found.target == "ppo:CartPole-v1"
    assert found.env_steps == 32
    assert found.curve["env_steps"].tolist() == [16, 32]
    assert {"hotloop", "torch", "numpy", "gymnasium"} <= found.versions.keys()
    save_checkpoint(found, tmp_path / "again.checkpoint")
    assert same(load_checkpoint(tmp_path / "again.checkpoint"), found)


def test_a_checkpoint_cut_anywhere_is_refused(path, tmp_path):
    data, whole, file = path.read_bytes(), load_checkpoint(path), tmp_path / "cut.checkpoint"
    for length in {*range(0, len(data), 37), *range(len(data) - 40, len(data))}:
        file.write_bytes(data[:length])
        assert not refused_or_same(file, whole), length


def test_a_changed_byte_is_refused_or_changes_nothing(path, tmp_path):
    data, whole, file = path.read_bytes(), load_checkpoint(path), tmp_path / "changed.checkpoint"
    refused = 0
    for k in range(0, len(data), 11):
        changed = bytearray(data)
        changed[k] ^= 1 << (k % 8)
        file.write_bytes(changed)
        refused += not refused_or_same(file, whole)
    assert refused > 100


def places_in(value, place=()):
    yield place
    if isinstance(value, dict):
        for name, part in value.items():
            yield from places_in(part, (*place, name))


def put(header, place, value):
    *outer, last = place
    for name in outer:
        header = header[name]
    header[last] = value


def uses(file, learner):
    """Go on from a file as a training does; whether that was not refused."""
    problem = ""
    try:
        learner.load_state_dict(load_checkpoint(file).state)
    except CheckpointError as error:
        problem = str(error)
    assert "\n" not in problem
    return not problem


@pytest.mark.long
def test_any_value_of_the_header_may_be_replaced(path, learner):
    """By each bad value: never anything but a sentence, or a learner that is as it should be."""
    header = json.loads(entries_of(path)[HEADER])
    refused = 0
    for place in list(places_in(header))[1:]:
        for value in BAD:
            file = with_header(path, lambda h, p=place, v=value: put(h, p, copy.deepcopy(v)))
            refused += not uses(file, learner)
            for part in learner.state_dict()["policy"].values():
                assert np.isfinite(part).all()
    assert refused > 400


@pytest.mark.long
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_parts_of_the_header_may_be_missing_added_or_swapped(path, learner, data):
    header = json.loads(entries_of(path)[HEADER])
    places = list(places_in(header))[1:]
    one, other = (data.draw(st.sampled_from(places)) for _ in range(2))
    how = data.draw(st.sampled_from(["missing", "added", "swapped"]))

    def change(found):
        *outer, last = one
        part = found
        for name in outer:
            part = part[name]
        if how == "missing":
            del part[last]
        elif how == "added":
            part[f"{last}x"] = copy.deepcopy(part[last])
        else:
            value = found
            for name in other:
                value = value[name]
            part[last] = copy.deepcopy(value)

    accepted = uses(with_header(path, change), learner)
    # A version more or less, and equal values swapped, leave a checkpoint as it was.
    once_fixed = how == "missing" and one[-1] in ("activation", "initial_std")
    if how != "swapped" and one[0] != "versions" and not once_fixed:
        assert not accepted, (how, one)


def test_text_that_is_no_plain_json_is_refused(path):
    entries = entries_of(path)
    text = entries[HEADER].decode()
    assert '"every": 0' in text
    for old, new, message in (
        ('"every": 0', '"every": NaN', "expected finite numbers, got NaN"),
        ('"every": 0', '"every": -Infinity', "expected finite numbers"),
        ('"learning_rate": 0.005', '"learning_rate": 1e999', "learning_rate"),
        ('"every": 0', '"every": 0, "every": 0', "expected each name once"),
        ('"every": 0', f'"every": {"[" * 10**5}{"]" * 10**5}', "damaged"),
        ('"every": 0', f'"every": {"9" * 10**5}', "damaged"),
        ('"every": 0', '"every": 0, "more": 1', "unknown part 'more'"),
        ('"every": 0', '"every": ', "damaged"),
        ('"gamma"', '"gama"', "unknown name 'gama'; did you mean 'gamma'"),
        ('"algorithm": "ppo"', '"algorithm": "dqn"', "algorithm: expected one of ppo"),
        ('"minibatches": 1', '"minibatches": 7', "settings: ppo: minibatches: expected a divisor"),
        ('"hotloop_checkpoint": 1', '"hotloop_checkpoint": 2', "by a newer hotloop .format 2"),
        ('"hotloop_checkpoint": 1', '"hotloop_checkpoint": 0', "no hotloop checkpoint"),
        ('"hotloop_checkpoint": 1', '"hotloop_run": 2', "no hotloop checkpoint"),
    ):
        assert old in text, old
        edited = rewritten(path, {**entries, HEADER: text.replace(old, new)})
        with pytest.raises(CheckpointError, match=message) as raised:
            load_checkpoint(edited)
        assert "\n" not in str(raised.value)


class Runs:
    """Makes a file when it is unpickled."""

    def __init__(self, sign):
        self.sign = str(sign)

    def __reduce__(self):
        return Path.touch, (Path(self.sign),)


def test_no_pickle_is_run(path, tmp_path):
    sign, name = tmp_path / "ran", "state.policy.parameters.npy"
    hostile = np.array([Runs(sign)], object)
    pickle.loads(pickle.dumps(hostile))
    assert sign.exists()  # the control: it would run
    sign.unlink()
    for data in (array_bytes(hostile, allow_pickle=True), pickle.dumps(hostile)):
        with pytest.raises(CheckpointError):
            load_checkpoint(rewritten(path, {**entries_of(path), name: data}))
    assert not sign.exists()


def promised(shape, descr="'<f4'"):
    """An array entry whose header promises more than there is."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text = text.ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(16)


@pytest.mark.parametrize(
    "data",
    [
        promised("(10**15,)"), promised("(1000000000000,)"), promised("(-4,)"),
        promised("(2**62, 4)"), promised("(0, 99999999999999999999)"), promised("(4,)", "'|O'"),
        promised("(4,)", "'>f4'"), promised("(4,)", "'<M8[s]'"), promised("(4,)", "'<U1'"),
        promised("(1,)", "('<f4', (4,))"), promised("(1,)", "[('a', '<f4', (4,))]"),
        promised("(4L,)"), promised("True"), b"", b"\x93NUMPY", b"\x93NUMPY\x02\x00" + bytes(40),
        array_bytes(np.asfortranarray(np.ones((2, 2), np.float32))),
        array_bytes(np.ones(4, np.float32)), array_bytes(np.float64(1.0)),
        array_bytes(np.ones(4, complex)),
    ],
)  # fmt: skip
def test_arrays_that_are_not_the_policys_are_refused(path, learner, data):
    entries = entries_of(path)
    name = "state.policy.parameters.npy"
    assert name in entries
    assert not uses(rewritten(path, {**entries, name: data}), learner)


def test_numbers_that_are_not_finite_are_refused(path, learner):
    entries = entries_of(path)
    for name in entries:
        if name.startswith("state."):
            array = np.load(io.BytesIO(entries[name]))
            for bad in (np.nan, np.inf):
                data = array_bytes(np.full_like(array, bad))
                assert not uses(rewritten(path, {**entries, name: data}), learner), name


@pytest.mark.parametrize("name", ["curve.env_steps.npy", "curve.seconds.npy"])
def test_a_curve_that_falls_is_refused(path, name):
    entries = entries_of(path)
    array = np.load(io.BytesIO(entries[name]))
    for bad in (array[::-1].copy(), -array, array[:1], array.astype(np.float32), array[None]):
        with pytest.raises(CheckpointError, match="curve"):
            load_checkpoint(rewritten(path, {**entries, name: array_bytes(bad)}))


def test_entries_that_do_not_belong_are_refused(path):
    entries = entries_of(path)
    name = "state.policy.parameters.npy"
    more = array_bytes(np.ones(3))
    for edited in (
        {**entries, "state.more.npy": more},
        {**entries, "../escaped.npy": more},
        {**entries, "/tmp/escaped.npy": more},
        {**entries, "code.py": "raise SystemExit"},
        {key: data for key, data in entries.items() if key != name},
        {key: data for key, data in entries.items() if key != HEADER},
    ):
        with pytest.raises(CheckpointError):
            load_checkpoint(rewritten(path, edited))
    with pytest.warns(UserWarning, match="Duplicate name"):
        doubled = rewritten(path, [*entries.items(), (name, entries[name])])
    with pytest.raises(CheckpointError, match="each entry once"):
        load_checkpoint(doubled)
    assert not Path("/tmp/escaped.npy").exists()
    load_checkpoint(rewritten(path, entries, zipfile.ZIP_DEFLATED))
    for compression in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with pytest.raises(CheckpointError, match="stored or deflated"):
            load_checkpoint(rewritten(path, entries, compression))


def test_what_unpacks_to_too_much_is_refused_unread(path, monkeypatch):
    monkeypatch.setattr(checkpoints, "MAX_BYTES", 1 << 20)
    entries = {HEADER: "no JSON", "state.x.npy": bytes(2 << 20)}
    with pytest.raises(CheckpointError, match=r"unpacks to 0\.0 GiB: expected at most"):
        load_checkpoint(rewritten(path, entries, zipfile.ZIP_DEFLATED))
    monkeypatch.setattr(checkpoints, "MAX_HEADER_BYTES", 100)
    with pytest.raises(CheckpointError, match="unpacks to"):
        load_checkpoint(path)


def test_what_is_as_large_as_its_file_is_read_however_large(path, monkeypatch):
    whole = load_checkpoint(path)
    monkeypatch.setattr(checkpoints, "MAX_BYTES", 100)
    monkeypatch.setattr(checkpoints, "_CHUNK_BYTES", 7)  # arrays are read in several pieces
    assert same(load_checkpoint(path), whole)
    with pytest.raises(CheckpointError, match="unpacks to"):
        load_checkpoint(rewritten(path, entries_of(path), zipfile.ZIP_DEFLATED))


def test_files_that_are_no_checkpoint_are_refused(path, tmp_path):
    run, text, empty = tmp_path / "a.run", tmp_path / "text", tmp_path / "empty"
    with zipfile.ZipFile(run, "w") as archive:
        archive.writestr("run.json", "{}")
    text.write_text("not at all")
    empty.touch()
    for file, message in (
        (run, "is an archive, but no hotloop checkpoint"),
        (text, "is no hotloop checkpoint"),
        (empty, "is no hotloop checkpoint"),
        (tmp_path, "is a folder"),
        (tmp_path / "none", "no such checkpoint"),
        (text / "below", "no such checkpoint"),
        (path.with_name("b.checkpoint"), "did you mean 'a.checkpoint'"),
    ):
        with pytest.raises(CheckpointError, match=message):
            load_checkpoint(file)


def test_a_checkpoint_of_before_activations_were_a_setting_has_what_was_fixed_then(path):
    def change(header):
        del header["settings"]["activation"], header["settings"]["initial_std"]

    assert load_checkpoint(with_header(path, change)).settings == load_checkpoint(path).settings


def test_a_policy_of_another_network_or_env_is_refused(path):
    found = load_checkpoint(path)
    for changed in ({"hidden_size": 3}, {"hidden_layers": 2}, {"env_id": "Acrobot-v1"}):
        other = dataclasses.replace(found, settings=dataclasses.replace(found.settings, **changed))
        with pytest.raises(CheckpointError, match=r"parameters: expected float32 .* got float32"):
            saved_policy(other)


def test_the_policy_of_a_checkpoint_plays_as_in_training(path):
    found = load_checkpoint(path)
    played = evaluate(found)
    assert played.returns.mean() == found.curve["mean_return"][-1]
    np.testing.assert_array_equal(played.lengths, played.returns)  # a reward of 1 each step
    few = evaluate(found, episodes=3, seed=5)
    assert len(few.returns) == 3
    np.testing.assert_array_equal(few.returns, evaluate(found, episodes=3, seed=5).returns)


def test_a_number_that_is_not_finite_is_not_saved(path, tmp_path):
    found = load_checkpoint(path)
    file = tmp_path / "a.checkpoint"
    save_checkpoint(found, file)
    with pytest.raises(CheckpointError, match="expected finite numbers to save"):
        save_checkpoint(dataclasses.replace(found, seconds=math.nan), file)
    assert same(load_checkpoint(file), found)


@pytest.mark.long
def test_a_kill_during_the_writing_leaves_the_old_checkpoint_whole(path, tmp_path):
    file = tmp_path / "a.checkpoint"
    file.write_bytes(path.read_bytes())
    code = f"""
import os
from pathlib import Path
from hotloop.learn import checkpoint
from hotloop.learn.checkpoint import load_checkpoint, save_checkpoint
found, written = load_checkpoint(Path({str(file)!r})), []
write = checkpoint.np.lib.format.write_array
def killed(file, array, *arguments, **settings):
    write(file, array, *arguments, **settings)
    written.append(array)
    if len(written) == 3:
        file._fileobj.flush()
        os.kill(os.getpid(), {int(signal.SIGKILL)})
checkpoint.np.lib.format.write_array = killed
save_checkpoint(found, Path({str(file)!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    assert file.read_bytes() == path.read_bytes()
    assert len(list(tmp_path.iterdir())) == 2  # and what was begun, under another name


def test_reading_one_needs_no_torch_until_it_is_used(path):
    code = "import hotloop.learn.checkpoint, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
