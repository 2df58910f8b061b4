"""Is what hotloop says of a script that nobody adapted true? Twenty-one scripts and their fixes.

Each script of `benchmarks/foreign` is written as the manual of its library would have it, knows
nothing of hotloop, and holds one bottleneck that `--fix` really removes. It is run as it stands, to
see that it works; then `hotloop simplify` says what it would gain if a stage were free, and
`hotloop benchmark` how much of that stage the fix leaves. The truth is the time of both versions
without hotloop, in processes of their own that go on in turns of a quarter of a second: long runs
less short ones, so that imports and start do not count.

    python benchmarks/foreign_scripts.py --setup
    python benchmarks/foreign_scripts.py --check --only 'sb3_*'
    python benchmarks/foreign_scripts.py --budget 60 --pairs 4
    python benchmarks/foreign_scripts.py --page-only

`--setup` makes the virtual environments, about 12 GB, each with hotloop from this checkout. Every
answer is a line of the results, from which the page is made. What stands there, by the code of now,
is not measured again: a benchmark that was broken off goes on. `taskset -c 0 python …` keeps it to
one core.
"""

import argparse
import fnmatch
import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreign_page import kind_of, write
from foreign_table import GROUPS, SCRIPTS, TABLE, UNLIMITED, Script
from hotloop.loop.host import host_facts
from league.process import Ended, append, read, run_command, run_in_turns

ROOT = Path(__file__).parents[1]
RESULTS = Path("docs/benchmarks/foreign_scripts.jsonl")
PAGE = Path("docs/benchmarks/foreign_scripts.md")
VENVS = Path.home() / ".cache" / "hotloop-foreign"
# One thread each, nothing from the network, and no word about either.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "PYTHONPATH": str(SCRIPTS),
}
START_S = 180.0  # a process may take so long for imports and its start, on a busy machine
# What a fix leaves is measured so many times, each time both versions for so long.
LEFT_TURNS, LEFT_S = 3, 6.0
PLAIN_S = 600.0  # a run without hotloop may take so long
TURN_S = 0.25  # of a run without hotloop, before another one goes on


@dataclass(frozen=True)
class Place:
    """Where a script runs: with the programs of one virtual environment."""

    script: str
    venvs: Path

    @property
    def entry(self) -> Script:
        return TABLE[self.script]

    @property
    def file(self) -> str:
        return self.entry.file or f"{self.script}.py"

    @property
    def programs(self) -> Path:
        return self.venvs / self.entry.group / "bin"

    def run(self, program: str, words: Sequence[str], limit_s: float) -> Ended:
        """Run a program of the virtual environment, in a folder that is removed afterwards."""
        with tempfile.TemporaryDirectory() as folder:
            command = [str(self.programs / program), *words]
            return run_command(command, limit_s, environment=_environment(), folder=Path(folder))

    def plain(self, steps: int, *, fixed: bool) -> Ended:
        """Run the script without hotloop."""
        return self.run("python", self._words(steps, fixed), PLAIN_S)

    def in_turns(self, versions: Sequence[tuple[int, bool]]) -> list[Ended]:
        """Run versions of the script without hotloop, each given by its steps and `fixed`."""
        program = str(self.programs / "python")
        commands = [[program, *self._words(*version)] for version in versions]
        return run_in_turns(commands, PLAIN_S, turn_s=TURN_S, environment=_environment())

    def measured(self, verb: str, options: Sequence[str], limit_s: float, *, fixed: bool) -> Ended:
        """Run the script under a verb of hotloop."""
        target = self._filled(self.entry.target)
        arguments = self._arguments(UNLIMITED, fixed)
        words = [verb, *target, *self.entry.options, *options, "--", *arguments]
        return self.run("hotloop", words, limit_s)

    def _words(self, steps: int, fixed: bool) -> list[str]:
        return [*self._filled(self.entry.target), *self._arguments(steps, fixed)]

    def _arguments(self, steps: int, fixed: bool) -> list[str]:
        entry = self.entry
        after = entry.fix if fixed else entry.without
        return [*self._filled(entry.before), str(steps), *after]

    def _filled(self, words: Sequence[str]) -> list[str]:
        path = str(SCRIPTS / self.file)
        return [path if word == "{script}" else word for word in words]


def _environment() -> dict[str, str]:
    return {**os.environ, **ENVIRONMENT}


def main() -> None:
    chosen = _options()
    names = [name for name in TABLE if _matches(name, chosen.only)]
    if chosen.setup:
        _set_up(chosen.venvs, list(dict.fromkeys(TABLE[name].group for name in names)))
        return
    if not chosen.page_only:
        for name in names:
            _measure(Place(name, chosen.venvs), chosen)
    if not chosen.check:
        write(chosen.results, chosen.markdown)


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--setup", action="store_true", help="make the virtual environments")
    options.add_argument("--check", action="store_true", help="only see whether the scripts work")
    options.add_argument("--venvs", type=Path, default=VENVS, help="where they are")
    options.add_argument("--only", default="*", metavar="NAMES", help="patterns, with commas")
    options.add_argument("--budget", type=float, default=60.0, help="seconds of an experiment")
    options.add_argument("--pairs", type=int, default=4, help="how often both versions take turns")
    options.add_argument("--again", action="store_true", help="repeat what the results hold")
    options.add_argument("--results", type=Path, default=RESULTS, help="where raw results go")
    options.add_argument("--markdown", type=Path, default=PAGE, help="where the page goes")
    options.add_argument("--page-only", action="store_true", help="measure nothing")
    chosen = options.parse_args()
    if chosen.pairs < 2:
        options.error(f"--pairs: expected 2 or more, for an interval; got {chosen.pairs}")
    if not any(_matches(name, chosen.only) for name in TABLE):
        options.error(f"--only: no script is called {chosen.only}; there are {', '.join(TABLE)}")
    return chosen


def _matches(name: str, patterns: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns.split(","))


# --- the virtual environments --------------------------------------------------------------------


def _set_up(venvs: Path, groups: Sequence[str]) -> None:
    """Make the virtual environments that are missing, and bring hotloop in all up to date."""
    failed = []
    for group in groups:
        print(f"{group}: {', '.join(GROUPS[group])}", flush=True)
        folder = venvs / group
        if not (folder / "bin" / "pip").exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        command = [str(folder / "bin" / "pip"), "install", "--quiet"]
        command += ["-c", str(ROOT / "constraints.txt"), "-e", str(ROOT), *GROUPS[group]]
        if subprocess.run(command).returncode:
            failed.append(group)
    if failed:
        raise SystemExit(f"pip could not install {', '.join(failed)}: what it said is above")


def _version_of(place: Place) -> str:
    """The package with its version; empty where it is not installed."""
    code = f"from importlib.metadata import version; print(version({place.entry.package!r}))"
    try:
        asked = place.run("python", ["-c", code], START_S)
    except FileNotFoundError:
        return ""
    return "" if asked.code else f"{place.entry.package} {asked.out.strip()}"


@functools.cache
def _hash_of(folder: Path) -> str:
    """Of the sources in a folder."""
    files = sorted(folder.rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


# --- one script ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answers:
    """The answers about one script: those that the results hold, and those that are found now.

    facts: what every line says of the script; equal facts, an equal version and an equal kind of
    machine: the same answer.
    """

    results: Path
    facts: Mapping[str, Any]
    again: bool

    def of(
        self, what: str, find: Callable[[], dict[str, Any]], version: str = "", **facts: Any
    ) -> dict[str, Any]:
        """Return what the results hold, else what `find` returns, which is added to them."""
        wanted = {"what": what, "version": version} | self.facts | facts
        for line in [] if self.again else read(self.results):
            if line.items() >= wanted.items() and kind_of(line["machine"]) == kind_of(_machine()):
                return line
        answer = find()
        append(self.results, version, wanted | answer | {"machine": _machine()})
        _say(self.facts["script"], what, answer)
        return answer


def _measure(place: Place, chosen: argparse.Namespace) -> None:
    """Measure what the results do not hold yet of one script."""
    package = _version_of(place)
    if not package:
        print(f"{place.script}: not installed; run with --setup", flush=True)
        return
    if chosen.check:
        _say(place.script, "plain", _plain(place))
        return
    facts = {"script": place.script, "package": package, "text": _text_of(place)}
    answers = Answers(chosen.results, facts, chosen.again)
    if answers.of("plain", lambda: _plain(place)).get("refused"):
        return
    hotloop, budget = _hash_of(ROOT / "src" / "hotloop"), chosen.budget
    said = answers.of("verdict", lambda: _verdict(place, budget), hotloop, budget=budget)
    if place.entry.stage in said.get("rows", {}):
        for turn in range(LEFT_TURNS):
            answers.of("left", functools.partial(_left, place, turn), hotloop, turn=turn)
    for pair in range(chosen.pairs):
        answers.of("pair", functools.partial(_pair, place), pair=pair, turn_s=TURN_S)


def _text_of(place: Place) -> str:
    """A hash of what a script is and how it is run."""
    text = (SCRIPTS / place.file).read_bytes() + repr(place.entry).encode()
    return hashlib.sha256(text).hexdigest()[:12]


def _plain(place: Place) -> dict[str, Any]:
    """Whether both versions work, in a short run."""
    found: dict[str, Any] = {}
    for fixed in (False, True):
        ended = place.plain(place.entry.steps[0], fixed=fixed)
        if ended.refused:
            return {"refused": ended.refused}
        found["fixed_s" if fixed else "plain_s"] = ended.wall_s
    return found


def _verdict(place: Place, budget: float) -> dict[str, Any]:
    """What `hotloop simplify` says of the script as it stands."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--json", "--save", str(Path(folder) / "verdict.run"), "--budget", str(budget)]
        limit_s = 2 * budget + START_S
        ended = place.measured("simplify", options, limit_s, fixed=False)
    said = _json_of(ended)
    found: dict[str, Any] = {"wall_s": ended.wall_s}
    if "rows" not in said:
        return found | {"refused": _why(ended)}
    fix = said["fix"] or {}
    return found | {
        "refused": said["refused"],
        "unit": said["unit"],
        "fix": list(fix.get("stages") or filter(None, [fix.get("name")])),
        "ties": said["ties"],
        "rows": {
            row["name"]: {
                name: row[name] for name in ("verdict", "share", "ns_per_iteration", "gain")
            }
            for row in said["rows"]
        },
        "warnings": said["warnings"],
    }


def _left(place: Place, turn: int) -> dict[str, Any]:
    """Share and time of each stage in both versions, by `hotloop benchmark`."""
    found: dict[str, Any] = {}
    for fixed in (bool(turn % 2), not turn % 2):
        with tempfile.TemporaryDirectory() as folder:
            file = str(Path(folder) / "left.run")
            options = ["--json", "--save", file, "--seconds", str(LEFT_S)]
            ended = place.measured("benchmark", options, LEFT_S + START_S, fixed=fixed)
        said = _json_of(ended)
        if not said.get("stages"):
            return {"refused": _why(ended)}
        found["fixed" if fixed else "plain"] = {
            stage["name"]: {name: stage[name]["value"] for name in ("ns_per_iteration", "share")}
            for stage in said["stages"]
        }
    return found


def _pair(place: Place) -> dict[str, Any]:
    """Seconds of a short and a long run of both versions, all four in turns."""
    found: dict[str, Any] = {"plain_s": [], "fixed_s": []}
    versions = [(steps, fixed) for steps in place.entry.steps for fixed in (False, True)]
    for (_, fixed), ended in zip(versions, place.in_turns(versions), strict=True):
        if ended.refused:
            return {"refused": ended.refused}
        found["fixed_s" if fixed else "plain_s"].append(ended.wall_s)
    return found


def _json_of(ended: Ended) -> dict[str, Any]:
    """What hotloop printed; a library may have printed before it, or after."""
    at = ended.out.find("{\n")
    try:
        return json.JSONDecoder().raw_decode(ended.out[max(at, 0) :])[0]  # type: ignore[no-any-return]
    except json.JSONDecodeError:
        return {}


def _why(ended: Ended) -> str:
    """Hotloop's own sentence, where there is one."""
    own = [line for line in ended.errors.splitlines() if line.startswith("hotloop: ")]
    return own[-1].removeprefix("hotloop: ") if own else ended.refused or "it printed no JSON"


@functools.cache
def _machine() -> dict[str, Any]:
    return host_facts()


def _say(script: str, what: str, answer: Mapping[str, Any]) -> None:
    """Print a line about one answer, for whoever watches."""
    short = answer.get("refused") or ", ".join(
        f"{name} {value}" for name, value in answer.items() if name not in ("rows", "warnings")
    )
    print(f"{time.strftime('%H:%M:%S')} {script:20} {what}: {short}", flush=True)


if __name__ == "__main__":
    main()
