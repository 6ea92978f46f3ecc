"""The code of docs/streams.md runs, block after block."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/streams.md"


def test_the_blocks_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert len(blocks) == 4
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert "left out, noise factor" in capsys.readouterr().out
    assert names["again"].stats == names["stream"].stats  # type: ignore[attr-defined]
