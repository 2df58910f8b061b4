"""The page about Python: its code runs as it stands there, in the order of the page."""

import re
from pathlib import Path

import pytest

import hotloop

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/python.md"


def test_its_code_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.M | re.S)
    assert len(blocks) == 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    printed = capsys.readouterr().out
    assert "my loop" in printed
    assert "samples/s" in printed
    assert isinstance(names["result"], hotloop.BenchmarkResult)
    assert isinstance(names["answer"], hotloop.SimplifyResult)
    assert (tmp_path / "my_loop.run").exists()


def test_the_readme_leads_there() -> None:
    assert "(docs/python.md)" in (ROOT / "README.md").read_text()
