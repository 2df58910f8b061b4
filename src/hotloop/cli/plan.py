"""`hotloop plan`: what would a cluster bring, what limits it, and what would it cost?"""

from dataclasses import dataclass, field
from pathlib import Path

import tyro

from hotloop.cli.finish import finish
from hotloop.cli.options import numbers_in
from hotloop.cli.output import consoles, parse, show_result
from hotloop.errors import SettingError
from hotloop.plan.modes import Cell
from hotloop.plan.points import Point, Question, read_points, read_questions
from hotloop.plan.settings import PlanSettings
from hotloop.plan.split import read_splits
from hotloop.results.plan import make_plan, make_split, points_of_runs


@dataclass(frozen=True)
class Options:
    """Forecast the env steps per second of clusters from a few measured points."""

    runs: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Runs of `hotloop benchmark ENV --simulate-nodes N`, whose points are used."""
    points: Path | None = None
    """CSV file of measured points: nodes, cores_per_node, step_s, sps; if wanted mode,
    fragment_steps, and busy, the share of the machine's cores that worked."""
    predict: Path | None = None
    """CSV file of what to forecast: nodes, cores_per_node, step_s; if wanted mode, fragment_steps,
    and sps, which the forecast is compared with. Default: the points themselves."""
    nodes: str | None = None
    """Numbers of nodes to forecast, with commas, such as 8,32; instead of --predict."""
    step_s: str | None = None
    """With --nodes: durations of a step in seconds, with commas; default: those of the points."""
    cores_per_node: int | None = None
    """With --nodes: cores of a node; default: as of the first point."""
    mode: str | None = None
    """With --nodes: how steps reach the head: step, batched, double-buffered, send-recv or
    fragments; default: as of the first point."""
    settings: tyro.conf.OmitArgPrefixes[PlanSettings] = field(default_factory=PlanSettings)
    splits: Path | None = None
    """Plan one machine instead: CSV file of measured splits of its cores between acting and
    learning: act_cores, learn_cores, sps."""
    cores: int | None = None
    """With --splits: cores of the machine; default: as many as the largest measured split has."""
    simulate: bool = False
    """Check each forecast of up to 1,000 nodes by a discrete-event simulation (needs simpy)."""
    json: bool = False
    """Print the forecasts as JSON."""
    save: Path | None = None
    """Where to save the run; default: under .hotloop/."""


def run(arguments: list[str]) -> int:
    """Run the verb; returns the exit code."""
    options = parse(Options, arguments, "plan")
    if options.splits is not None:
        return _splits(options, options.splits, arguments)
    if options.cores is not None:
        raise SettingError("--cores: expected --splits beside it")
    console, errors = consoles(options.json)
    points, source = _points(options)
    questions = _questions(options, points)
    ending = make_plan(source, points, questions, options.settings, simulate=options.simulate)
    result = ending.result

    def show() -> None:
        show_result(console, result, json=options.json)

    return finish(errors, result.run, ending.error, options.save, show, found=lambda: result.found)


def _splits(options: Options, path: Path, arguments: list[str]) -> int:
    """Plan a machine in place of a cluster."""
    given_names = {argument.split("=")[0] for argument in arguments if argument.startswith("--")}
    clash = sorted(given_names - {"--splits", "--cores", "--json", "--save"})
    if clash or options.runs:
        what = clash[0] if clash else str(options.runs[0])
        raise SettingError(f"{what}: expected without --splits, which plans one machine")
    console, errors = consoles(options.json)
    splits = read_splits(path)
    largest = max((s.act_cores + s.learn_cores for s in splits), default=0)
    result = make_split(path.name, splits, largest if options.cores is None else options.cores)

    def show() -> None:
        show_result(console, result, json=options.json)

    return finish(errors, result.run, None, options.save, show, found=lambda: result.found)


def _points(options: Options) -> tuple[list[Point], str]:
    """The measured points, and what they are called."""
    points = points_of_runs(options.runs)
    names = [path.name for path in options.runs]
    if options.points is not None:
        points += read_points(options.points)
        names.append(options.points.name)
    if not points:
        raise SettingError(
            "plan: expected measured points: --points FILE.csv (columns nodes, cores_per_node, "
            "step_s, sps), or a run of `hotloop benchmark ENV --simulate-nodes N`"
        )
    return points, ", ".join(names)


def _questions(options: Options, points: list[Point]) -> list[Question]:
    """The cells to forecast; none for those of the points."""
    beside = {
        "--step-s": options.step_s is not None,
        "--cores-per-node": options.cores_per_node is not None,
        "--mode": options.mode is not None,
    }
    if options.predict is not None:
        clash = [
            name
            for name, given in {"--nodes": options.nodes is not None, **beside}.items()
            if given
        ]
        if clash:
            raise SettingError(f"{clash[0]}: expected without --predict, whose file says it")
        return read_questions(options.predict)
    if options.nodes is None:
        alone = [name for name, given in beside.items() if given]
        if alone:
            raise SettingError(f"{alone[0]}: expected --nodes beside it")
        return []
    counts = numbers_in("--nodes", options.nodes, int)
    return [Question(cell) for cell in _cells(options, counts, points)]


def _cells(options: Options, counts: tuple[int, ...], points: list[Point]) -> list[Cell]:
    first = points[0].cell
    durations = tuple(dict.fromkeys(p.cell.step_s for p in points))
    if options.step_s is not None:
        durations = numbers_in("--step-s", options.step_s, float)
    cores = first.cores_per_node if options.cores_per_node is None else options.cores_per_node
    return [
        Cell(nodes, cores, step_s, options.mode or first.mode)
        for step_s in durations
        for nodes in counts
    ]
