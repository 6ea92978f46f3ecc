"""The page docs/your-samples.md: its blocks of Python run one after the other, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "your-samples.md"


def test_the_blocks_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(block, names)
    right = int(capsys.readouterr().out.split()[0])
    assert right >= 24
    assert "<b>sample 0</b>" in (tmp_path / "page.html").read_text(encoding="utf-8").replace("\\u003c", "<").replace(
        "\\u003e", ">"
    )
    assert {path.name for path in tmp_path.iterdir()} == {"page.html", "samples.csv", "samples.parquet"}
