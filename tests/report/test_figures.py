import csv

import numpy as np
import pytest

from infobatch.report import figures
from report.runs import run, runs

MAGIC = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml"}


def read(paths):
    """The numbers, after a look at the pictures."""
    assert [path.suffix for path in paths] == [".png", ".svg", ".csv"]
    for path in paths[:2]:
        assert path.read_bytes().startswith(MAGIC[path.suffix])
        assert path.stat().st_size > 5000
    with paths[2].open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_savings_are_mean_time_saved_and_mean_cost_over_the_seeds(tmp_path):
    short = [run(method, seed, epochs=5) for method in ("full", "infobatch") for seed in range(3)]
    rows = read(figures.savings([short, runs(["full", "infobatch"], range(2))], tmp_path / "figure-4b"))
    assert [row["epochs"] for row in rows] == ["5", "12"]
    full, pruned = (np.mean([r.seconds for r in short if r.method == m]) for m in ("full", "infobatch"))
    assert float(rows[0]["saved_seconds"]) == pytest.approx(full - pruned)
    assert float(rows[0]["cost_seconds"]) == pytest.approx(0.02)


def test_left_out_samples_are_counted_by_epoch(tmp_path):
    records = runs(["infobatch"], range(3))
    rows = read(figures.pruned_per_epoch(records, tmp_path / "figure-4d"))
    assert [int(row["epoch"]) for row in rows] == list(range(1, 13))
    for epoch, row in enumerate(rows):
        assert float(row["left_out"]) == pytest.approx(np.mean([r.total - r.kept[epoch] for r in records]))
        assert float(row["value"]) == pytest.approx(np.mean([r.values[epoch] for r in records]))


def test_the_distribution_counts_all_the_kept_and_the_rescaled(tmp_path):
    losses = np.array([0.1, 0.2, 0.3, 5.0])
    weights = np.array([0.0, 2.0, 1.0, 1.0])
    rows = read(figures.distribution(losses, weights, tmp_path / "deep" / "figure-6"))
    total = {name: sum(float(row[name]) for row in rows) for name in ("all", "kept", "rescaled", "kept_by_weight")}
    assert total == {"all": 4, "kept": 3, "rescaled": 3, "kept_by_weight": 4}
    where = {name: [float(row["from"]) for row in rows if float(row[name])] for name in total}
    width = float(rows[0]["to"])
    assert where["kept"][0] <= 0.2 < where["kept"][0] + width
    assert where["rescaled"][-1] <= 5.0
    assert max(float(row["kept_by_weight"]) for row in rows) == 2
