"""Every loop of the league, by name."""

from league import memory, rare, serial
from league.entry import Entry, table_of

LOOPS: dict[str, Entry] = dict(table_of(serial.LOOPS, memory.LOOPS, rare.LOOPS))
PAIRS = [(name, stage, left) for name, entry in LOOPS.items() for stage, left in entry.fixes]
