"""Training scripts as the libraries' manuals write them, with the truth beside the lines.

A comment `# fault: NAME` says that the detector of this name must report its line; a line without
one must not be reported. `benchmarks/detectors.py` runs them all.
"""

import sys
import types
from pathlib import Path


def install_card() -> None:
    """Let scripts import `card`, in a module that passes for generated code.

    What it does for a script, a driver does on a machine with a card: it is no line of the user's.
    """
    source = Path(__file__).with_name("card.py").read_text()
    module = sys.modules["card"] = types.ModuleType("card", "A card made of CPU memory.")
    exec(compile(source, "<card>", "exec"), vars(module))
