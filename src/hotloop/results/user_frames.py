"""Where in the user's own code an error came up: frames of hotloop say nothing about their loop."""

import os
import traceback
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[1]) + os.sep


def user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of an error's traceback that are neither hotloop's nor the import system's."""
    return [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_PACKAGE, "<frozen"))
    ]
