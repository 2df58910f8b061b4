"""A script without iterations that goes on for longer than anybody asked for."""

import time
from pathlib import Path

begin = time.monotonic()
while time.monotonic() - begin < 600:
    time.sleep(0.01)
Path("ended").touch()
