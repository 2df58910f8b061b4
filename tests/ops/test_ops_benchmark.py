"""The benchmark of the kernels: its ways agree, and its page says so in rows."""

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmark_of_ops(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield importlib.import_module("ops")
    for name in ("ops", "tables"):
        sys.modules.pop(name, None)


def test_every_way_computes_the_same(benchmark_of_ops):
    for name in benchmark_of_ops.KERNELS:
        ways = benchmark_of_ops.ways_of(name, benchmark_of_ops.drawn(9, 40))
        assert set(ways) >= {"hotloop", "NumPy"}


def test_a_way_that_computes_another_number_is_refused(benchmark_of_ops, monkeypatch):
    kernel, plain = benchmark_of_ops.KERNELS["gae"]
    wrong = {"gae": (kernel, lambda xp, steps: [each + 0.01 for each in plain(xp, steps)])}
    monkeypatch.setattr(benchmark_of_ops, "KERNELS", wrong)
    with pytest.raises(AssertionError, match="gae, NumPy"):
        benchmark_of_ops.ways_of("gae", benchmark_of_ops.drawn(9, 4))


def test_the_page_has_a_row_for_every_kernel_and_shape(benchmark_of_ops, monkeypatch, tmp_path):
    monkeypatch.setattr(benchmark_of_ops, "ROUNDS", 3)
    monkeypatch.setattr(benchmark_of_ops, "TURN_NS", 1)
    monkeypatch.setattr(benchmark_of_ops, "SHAPES", ((2, 3), (5, 1)))
    monkeypatch.setattr(sys, "argv", ["ops.py", "--write", str(tmp_path / "ops.md")])
    benchmark_of_ops.main()
    page = (tmp_path / "ops.md").read_text()
    for name in benchmark_of_ops.KERNELS:
        for shape in ("2 x 3", "5 x 1"):
            assert page.count(f"| `{name}` | {shape} |") == 1
