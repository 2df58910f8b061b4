"""The page about populations: the code of its models and gradients runs as it stands there."""

import re
from pathlib import Path

import pytest
import torch

PAGE = Path(__file__).parents[3] / "docs/simulate.md"


def test_its_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text()
    part = text[text.index("## Models of what spreads") : text.index("## As an environment")]
    blocks = re.findall(r"^```python\n(.*?)^```", part, flags=re.M | re.S)
    assert len(blocks) == 4
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert capsys.readouterr().out.startswith("[")
    loss = names["loss"]
    assert isinstance(loss, torch.Tensor)
    assert loss.requires_grad
