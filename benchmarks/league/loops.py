"""Every loop of the league, by name."""

from league import concurrent, engines, learning, memory, rare, serial
from league.entry import Entry, table_of

TABLES = (
    serial.LOOPS,
    memory.LOOPS,
    rare.LOOPS,
    concurrent.LOOPS,
    learning.LOOPS,
    engines.LOOPS,
)
LOOPS: dict[str, Entry] = dict(table_of(*TABLES))
PAIRS = [(name, stage, left) for name, entry in LOOPS.items() for stage, left in entry.fixes]
