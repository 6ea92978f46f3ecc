"""Figures of the paper as pictures of finished runs."""

import csv
from dataclasses import replace

import numpy as np

from infobatch.lab.comparison import Comparison
from infobatch.lab.method import MethodSpec
from infobatch.lab.paper.figures import FIGURES, draw
from infobatch.lab.paper.tables import TABLES
from lab.test_comparison import RECIPE, task


def compared(folder, epochs):
    recipe = replace(RECIPE, epochs=epochs)
    return Comparison(recipe, [MethodSpec.parse(m) for m in ("full", "infobatch")], [0], folder)


def numbers(paths):
    with paths[-1].open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_figure_is_drawn_from_its_runs(tmp_path):
    comparisons = [compared(tmp_path / str(epochs), epochs) for epochs in (2, 3)]
    assert draw("figure-4b", comparisons, tmp_path).paths == []  # nothing is finished
    for comparison in comparisons:
        comparison.run(task())
    assert set(FIGURES) <= set(TABLES)
    assert draw("figure-3", comparisons, tmp_path).paths == []
    for number in FIGURES:
        paths = draw(number, comparisons, tmp_path).paths
        assert [path.name for path in paths] == [f"{number}{ending}" for ending in (".png", ".svg", ".csv")]
        assert all(path.exists() for path in paths)
    assert [row["epochs"] for row in numbers(draw("figure-4b", comparisons, tmp_path).paths)] == ["2", "3"]
    record = next(run for run in comparisons[0].records() if run.method == "infobatch")
    drawn = draw("figure-4d", comparisons, tmp_path)
    left_out = [record.total - kept for kept in record.kept]
    assert [float(row["left_out"]) for row in numbers(drawn.paths)] == left_out
    assert drawn.said == f"Samples left out, epoch by epoch: {left_out[0]}, {left_out[1]}"


def test_the_distribution_is_the_one_of_full_data_pruned_by_the_mean_rule(tmp_path):
    comparison = compared(tmp_path, 1)
    comparison.run(task())
    drawn = draw("figure-6", [comparison], tmp_path)
    rows = numbers(drawn.paths)
    scores = comparison.scores("full", 0)
    below = np.count_nonzero(scores < scores.mean())
    counts = {name: sum(float(row[name]) for row in rows) for name in ("all", "kept", "kept_by_weight")}
    assert counts["all"] == 400
    assert counts["kept"] == 400 - below // 2
    assert abs(counts["kept_by_weight"] - 400) < 1e-9
    assert f"of the {400 - below // 2} that pruning leaves" in drawn.said
