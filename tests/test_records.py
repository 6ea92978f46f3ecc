import json

import pytest

from infobatch.records import Measure, Pair, RunRecord, group_by_further_measure

FURTHER = (Measure("probe", 4.5, False),)


def run(method="infobatch", seed=3, kept=(100, 60), times=(1.0, 0.6), **changes):
    fields = {"metric": "accuracy", "higher_is_better": True, "total": 100, "losses": (0.9, 0.5), "saving": 0.2}
    return RunRecord(method=method, seed=seed, kept=kept, times=times, values=(70.0, 80.0), **fields | changes)


def test_a_record_becomes_one_line_of_json_without_the_scores_and_back():
    record = run(
        scores=[0.1] * 100, histograms=((1, 2), (3, 4)), hardest=((7, 1.5),), recipe={"lr": 0.1}, further=FURTHER
    )
    line = record.to_json()
    assert "\n" not in line
    assert "scores" not in json.loads(line)
    again = RunRecord.from_json(line)
    assert again == record
    assert again.mean_noise is None
    assert RunRecord.from_json(run(noise=(1.0, 1.5)).to_json()).mean_noise == 1.25
    assert again.scores == ()
    assert again.value == 80.0
    assert again.further[0].name == "probe"


def test_a_run_can_be_judged_by_a_further_measure():
    first, other = run(further=FURTHER), run(seed=4)
    [[judged]] = group_by_further_measure([first, other])
    assert (judged.metric, judged.value, judged.higher_is_better) == ("probe", 4.5, False)
    assert (judged.kept, judged.seed, len(judged.values)) == (first.kept, first.seed, 2)


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
