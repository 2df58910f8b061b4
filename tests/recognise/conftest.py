"""What the tests of recognition share."""

from collections.abc import Iterator

import pytest

from hotloop.loop.arm import OFF, REAL, Arm
from hotloop.loop.control import SharedControl
from hotloop.recognise.recognition import Recognition


@pytest.fixture
def recognition() -> Iterator[Recognition]:
    """A recognition with a control of its own, whose stages run as they are."""
    control = SharedControl()
    control.set(Arm("real", rest=REAL))
    with Recognition(control) as made:
        yield made
    control.set(Arm("off", rest=OFF))
