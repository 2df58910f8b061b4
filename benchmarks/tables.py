"""How the benchmarks write their result pages: the machine first, then tables."""

from collections.abc import Sequence
from pathlib import Path

from hotloop.loop.host import describe, host_facts


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def ratio_text(ratio: tuple[float, float, float]) -> str:
    """A ratio with its interval."""
    return f"{ratio[0]:.2f} [{ratio[1]:.2f}, {ratio[2]:.2f}]"


def write_page(
    path: Path | None, title: str, parts: Sequence[str], made_by: str, *, show: bool = True
) -> None:
    """Print a page, unless `show` is False, and write it where asked."""
    made = f"Made by `{made_by}`, whose first lines say how to run it."
    page = "\n\n".join([f"# {title}", describe(host_facts()) + ".", *parts, made]) + "\n"
    if show:
        print(page)
    if path is not None:
        path.write_text(page)
