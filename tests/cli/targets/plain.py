"""A script that knows nothing of hotloop: it says what it was given, works a little, and ends."""

import json
import sys
from pathlib import Path

Path("arguments.json").write_text(json.dumps([__name__, *sys.argv[1:]]))
print("the script's own words, given", json.dumps([__name__, *sys.argv[1:]]))
if "--code" in sys.argv:
    sys.exit(int(sys.argv[sys.argv.index("--code") + 1]))
total = sum(range(100_000))
Path("ended").touch()
print("the script has ended", Path("ended").exists())
