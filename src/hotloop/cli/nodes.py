"""`hotloop benchmark ENV_ID --simulate-nodes N --step-s D`: what would a cluster of so many nodes
bring? Apart from `benchmark`, which measures loops: here the target is an env, and no loop runs.
"""

import sys
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn

from hotloop.cli.backends import expect_env_id
from hotloop.cli.finish import finish
from hotloop.cli.output import consoles, quiet, show_result
from hotloop.results.nodes import NodesSettings, measure_nodes


def measure_simulated(
    target: str, settings: NodesSettings, *, json: bool, save: Path | None
) -> int:
    """Measure, show and save; returns the exit code.

    Raises: SettingError for a target that is a loop; TargetError for an env that does not exist;
    WorkerError without Ray; what making or stepping the env raises.
    """
    expect_env_id("--simulate-nodes", target)
    console, errors = consoles(json)
    sys.path.insert(0, str(Path.cwd()))  # "package:id" finds packages of the user's folder
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[what]}"),
    )
    with (
        quiet(json),
        Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar,
    ):
        task = bar.add_task(target, total=1.0, what="")
        ending = measure_nodes(
            target, settings, lambda share, what: bar.update(task, completed=share, what=what)
        )
    result = ending.result

    def show() -> None:
        show_result(console, result, json=json)

    return finish(errors, result.run, ending.error, save, show, found=lambda: result.found)
