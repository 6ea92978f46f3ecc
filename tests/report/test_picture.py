import ast
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

import infobatch.report
from infobatch.report import Pair, RunRecord
from infobatch.report.picture import FORMATS, draw

rng = np.random.default_rng(0)
METRIC = "test accuracy, %"
FULL = RunRecord("full", 0, METRIC, True, 1000, (1000,) * 4, (0.9, 0.5, 0.3, 0.2), (2.0,) * 4, (90.0,) * 4, 0.0)
PRUNED = RunRecord(
    *("infobatch", 0, METRIC, True, 1000, (1000, 700, 600, 1000), (0.9, 0.6, 0.4, 0.2), (2.0, 1.4, 1.2, 2.0)),
    *((89.0,) * 4, 0.175),
    scores=rng.lognormal(-3, 2, 1000).tolist(),
)
MAGIC = {".png": b"\x89PNG\r\n\x1a\n", ".pdf": b"%PDF-", ".svg": b"<?xml"}


@pytest.mark.parametrize("ending", FORMATS)
def test_the_ending_says_the_format(tmp_path, ending):
    path = tmp_path / f"picture{ending}"
    draw([Pair(FULL, PRUNED)], path)
    content = path.read_bytes()
    assert content.startswith(MAGIC[ending])
    assert len(content) > 10_000


def test_the_picture_shows_both_runs_in_their_colours(tmp_path):
    draw([Pair(FULL, PRUNED)], tmp_path / "picture.png")
    pixels = np.round(255 * matplotlib.image.imread(tmp_path / "picture.png")[..., :3]).astype(int)
    assert pixels.shape == (675, 1950, 3)
    left, middle, right = np.split(pixels, 3, axis=1)
    grey, blue, pale = (0x9A, 0x9A, 0x9A), (0x00, 0x72, 0xB2), (0xE6, 0xEE, 0xF4)
    assert count(left, grey) > 200
    assert count(left, blue) > 200
    # Of the middle panel's area, 17.5 % is saved.
    assert count(middle, pale) / (count(middle, pale) + count(middle, blue)) == pytest.approx(0.175, abs=0.02)
    assert count(right, blue) > 5000


def count(pixels, colour):
    return int((pixels == colour).all(axis=2).sum())


def test_several_seeds_go_into_one_picture(tmp_path):
    other = Pair(replace(FULL, seed=1), replace(PRUNED, seed=1, losses=(0.8, 0.7, 0.5, 0.3)))
    draw([Pair(FULL, PRUNED), other], tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


@pytest.mark.parametrize("scores", [(), (float("nan"),) * 9, (0.0,) * 9, (0.0, 1e-9, 2.0, float("nan"))])
def test_unusual_score_tables_are_drawn_without_a_warning(tmp_path, scores):
    draw([Pair(FULL, replace(PRUNED, scores=scores))], tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_one_epoch_is_drawn(tmp_path):
    full = RunRecord("full", 0, METRIC, True, 10, (10,), (0.9,), (0.1,), (10.0,), 0.0, scores=[0.9] * 10)
    draw([Pair(full, replace(full, method="infobatch"))], tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_reports_import_no_torch_and_nothing_of_the_library_but_reports():
    for path in Path(infobatch.report.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert node.level <= 1, f"{path.name}, line {node.lineno}: imports from outside of report"
                names = [] if node.level else [node.module]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            for name in names:
                assert name.partition(".")[0] not in ("torch", "infobatch"), f"{path.name}, line {node.lineno}: {name}"
