"""One self-contained page about saved runs: the answer first, then the charts, then the figures.

What a run says is computed where its verb lives, put into tiles, charts and tables by
`hotloop.report.sections`, and laid out by the template. Here is what is of the page as a whole: the
order of its sections, one colour for each stage, and how it gets to its file. The page loads
nothing from anywhere and is the same, byte for byte, whenever it is drawn again from the same runs.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from hotloop.errors import RunError
from hotloop.loop.host import describe
from hotloop.loop.run import Run
from hotloop.report.sections.backends import backends_section
from hotloop.report.sections.benchmark import benchmark_section, compared_rows
from hotloop.report.sections.curves import calibrate_section, simulate_section
from hotloop.report.sections.section import Section
from hotloop.report.sections.simplify import simplify_section
from hotloop.report.sections.train import train_section

# The order of the story.
_VERBS = ("simplify", "benchmark", "backends", "train", "simulate", "calibrate")


def write_html(runs: Sequence[Run], path: Path) -> Path:
    """Write one page about all these runs to `path`; returns where.

    Raises: RunError if it cannot be written (what stood there before stays as it was), or if a
    run is of a kind that has no report.
    """
    page = render(runs)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(page, encoding="utf-8")
        scratch.replace(path)
    except OSError as error:
        raise RunError(
            f"the report could not be written as {path}: {error.strerror or error}. Free some "
            "room or name another place with --html"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink()
    return path


def render(runs: Sequence[Run]) -> str:
    """The page as text."""
    for run in runs:
        if run.verb not in _VERBS:
            raise RunError(f"a {run.verb} run of {run.target} has no report")
    if not runs:
        raise RunError("there is no run to report; name one or more")
    # A stable sort: runs of one verb stay in the order in which they were named.
    ordered = sorted(runs, key=lambda run: _VERBS.index(run.verb))
    colours = _colours(ordered)
    sections = [_section(f"r{k}", run, ordered, colours) for k, run in enumerate(ordered)]
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.jinja").render(
        title=", ".join(dict.fromkeys(run.target for run in ordered)),
        machines=list(dict.fromkeys(describe(run.host) for run in ordered)),
        many=len({run.target for run in ordered}) > 1,
        sections=sections,
        compared=compared_rows(ordered),
    )


def _colours(runs: Sequence[Run]) -> dict[str, int]:
    """A colour number for every stage of every run: one name, one colour, on the whole page."""
    names = [stage["name"] for run in runs for stage in run.facts.get("stages") or []]
    return {name: k for k, name in enumerate(dict.fromkeys(names))}


def _section(key: str, run: Run, runs: Sequence[Run], colours: Mapping[str, int]) -> Section:
    if run.verb == "simplify":
        # The benchmark's timeline shows the loop with nothing recorded beside it.
        better = any(r.verb == "benchmark" and r.target == run.target for r in runs)
        return simplify_section(key, run, colours, with_timeline=not better)
    if run.verb == "benchmark":
        return benchmark_section(key, run, colours)
    if run.verb == "backends":
        return backends_section(key, run)
    if run.verb == "simulate":
        return simulate_section(key, run)
    if run.verb == "calibrate":
        return calibrate_section(key, run)
    return train_section(key, run)
