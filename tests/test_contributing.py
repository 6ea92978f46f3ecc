"""CONTRIBUTING names files that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`([\w./-]+(?:/|\.(?:py|md|js|toml)))`", TEXT)))


@pytest.mark.parametrize("name", NAMES)
def test_the_file_is_there(name):
    rooms = (
        ROOT,
        ROOT / "src/infobatch",
        *(ROOT / "src/infobatch" / room for room in ("lab", "stream", "report", "cli")),
    )
    rooms += tuple(ROOT / "src/infobatch" / room for room in ("methods", "lab/data", "lab/tasks"))
    assert any((room / name).exists() for room in rooms)


def test_most_of_the_page_is_names_of_files():
    assert len(NAMES) > 40
