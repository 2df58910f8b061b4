"""Training scripts as the libraries' manuals write them, with the truth beside the lines.

A comment `# fault: NAME` says that the detector of this name must report its line; a line without
one must not be reported. `benchmarks/detectors.py` runs them all.
"""

import sys
import types
from pathlib import Path

import torch

# Where there is a card, the scripts run on it.
REAL_CARD = """
from contextlib import contextmanager
import torch

@contextmanager
def card():
    yield torch.device("cuda")
"""


def install_card() -> None:
    """Let scripts import `card`, in a module that passes for generated code.

    What it does for a script on a machine without a card, a driver does on one with a card: it is
    no line of the user's.
    """
    made_of_memory = Path(__file__).with_name("card.py").read_text()
    source = REAL_CARD if torch.cuda.is_available() else made_of_memory
    module = sys.modules["card"] = types.ModuleType(
        "card", "A card, or CPU memory that stands for it."
    )
    exec(compile(source, "<card>", "exec"), vars(module))
