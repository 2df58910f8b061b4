"""The live view of a training: drawn by time, a panel on a terminal and lines elsewhere."""

import io

from rich.console import Console

from hotloop.report.live_panel import LINE_S, PANEL_S, LivePanel

ROWS = [[("SPS", "12.3k"), ("updates/s", "48")], [("return", "20")]]


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


def shown(console, iterations, step_s):
    """The drawings that a loop of so many iterations asks for."""
    clock, drawn = Clock(), 0
    with LivePanel(console, "ppo:X", clock=clock) as panel:
        for k in range(iterations):
            clock.now_s += step_s
            if panel.due():
                panel.show(k / iterations, ROWS)
                drawn += 1
    return drawn


def test_lines_are_printed_every_ten_seconds_where_there_is_no_terminal():
    console = Console(file=io.StringIO(), width=40)
    assert LINE_S == 10
    assert shown(console, 100 * 1024, 1 / 1024) == 10
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "ppo:X  10%  SPS 12.3k, updates/s 48, return 20"
    assert len(lines) == 10


def test_a_short_training_prints_no_line():
    console = Console(file=io.StringIO())
    assert shown(console, 9_000, 0.001) == 0
    assert console.file.getvalue() == ""


def test_the_panel_is_drawn_four_times_a_second_on_a_terminal():
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    assert PANEL_S == 0.25
    assert shown(console, 2_000, 1 / 512) in (14, 15)
    screen = console.file.getvalue()
    assert screen.count("SPS") >= 14
    assert screen.rfind("\x1b[?25h") > screen.rfind("\x1b[?25l")  # the cursor is back


def test_a_share_beyond_the_end_is_the_end():
    console = Console(file=io.StringIO(), width=60)
    panel = LivePanel(console, "x")
    panel.show(1.7, ROWS)
    assert "100%" in console.file.getvalue()
