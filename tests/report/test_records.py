import json

import pytest

from infobatch.report import Pair, RunRecord


def run(method="infobatch", seed=3, kept=(100, 60), times=(1.0, 0.6), **changes):
    fields = {"total": 100, "losses": (0.9, 0.5), "accuracy": 0.8, "saving": 0.2, "torch": "2.13.0", "cpus": 2}
    return RunRecord(method=method, seed=seed, kept=kept, times=times, **fields | changes)


def test_a_record_becomes_one_line_of_json_without_the_scores():
    line = run(scores=[0.1] * 100).to_json()
    assert "\n" not in line
    assert json.loads(line) == {
        "method": "infobatch",
        "seed": 3,
        "samples": 160,
        "seconds": 1.6,
        "total": 100,
        "kept": [100, 60],
        "losses": [0.9, 0.5],
        "times": [1.0, 0.6],
        "accuracy": 0.8,
        "saving": 0.2,
        "torch": "2.13.0",
        "cpus": 2,
    }


def test_speed_ups_are_ratios_of_samples_and_of_times():
    pair = Pair(run("full", kept=(100, 100), times=(1.0, 1.0)), run(kept=(100, 60), times=(1.0, 0.5)))
    assert pair.ideal == 200 / 160
    assert pair.realised == 2.0 / 1.5
    assert pair.efficiency == pytest.approx((2.0 / 1.5) / (200 / 160))


def test_runs_of_different_seeds_are_no_pair():
    with pytest.raises(ValueError, match="share one seed, got 0 and 1"):
        Pair(run("full", seed=0), run(seed=1))


def test_a_stalled_epoch_makes_a_run_uneven_but_a_pruned_one_does_not():
    assert run(kept=(100, 50, 50), times=(1.0, 0.5, 0.5)).unevenness == pytest.approx(1)
    assert run(kept=(100, 50, 50), times=(1.0, 0.5, 2.0)).unevenness == pytest.approx(4)
