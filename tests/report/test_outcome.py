from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from infobatch.report.outcome import Band, outcomes
from report.runs import run, runs


def test_full_data_comes_first_and_the_others_as_they_appear() -> None:
    results = outcomes(runs(["random", "infobatch", "full"]))
    assert [(o.method, o.number, o.name) for o in results] == [
        ("full", 0, "Full data"),
        ("random", 1, "Random"),
        ("infobatch", 2, "InfoBatch"),
    ]


def test_without_full_data_there_is_no_pair_and_its_colour_stays_free() -> None:
    [outcome] = outcomes(runs(["infobatch"]))
    assert (outcome.number, outcome.pairs, outcome.difference) == (1, (), None)
    assert outcome.saved == pytest.approx(np.mean([r.saving for r in outcome.runs]))


def test_pairs_are_of_the_shared_seeds_alone() -> None:
    full, pruned = outcomes([*runs(["full"], [3, 0, 1]), *runs(["infobatch"], [1, 2, 0])])
    assert [r.seed for r in full.runs] == [0, 1, 3]
    assert [(p.full.seed, p.pruned.method) for p in pruned.pairs] == [(0, "infobatch"), (1, "infobatch")]
    assert len(pruned.difference.values) == 2
    assert not full.pairs


def test_saved_is_measured_against_full_data() -> None:
    # A shortened schedule leaves out no sample of an epoch, and saves all the same.
    _, shortened = outcomes([run("full", 0), run("full-shortened", 0, epochs=9, kept=(10_000,) * 9, saving=0.0)])
    assert shortened.saved == pytest.approx(0.25)


def test_a_band_is_students_interval_of_the_mean() -> None:
    curves = np.random.default_rng(0).normal(90, 1, (5, 7))
    band = Band.of(curves.tolist())
    low, high = stats.t.interval(0.95, 4, curves.mean(0), stats.sem(curves, axis=0))
    np.testing.assert_allclose(band.mean, curves.mean(0))
    np.testing.assert_allclose(band.reach, (high - low) / 2, rtol=1e-4)


def test_two_seeds_have_a_mean_and_no_band() -> None:
    assert Band.of([[1.0, 2.0], [3.0, 2.0]]) == Band((2.0, 2.0), None)


def test_a_band_ends_with_its_shortest_seed_and_survives_values_that_are_not_finite() -> None:
    band = Band.of([[1.0, math.nan, 3.0], [2.0, 2.0], [1.5, 2.0]])
    assert band.mean[0] == 1.5
    assert math.isnan(band.mean[1])
    assert math.isnan(band.reach[1])
    assert len(band.mean) == 2


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("method", ["full", "infobatch"])
def test_a_diverged_run_leaves_no_difference(method: str, bad: float) -> None:
    records = [replace(r, values=(*r.values[:-1], bad)) if (r.method, r.seed) == (method, 1) else r for r in runs()]
    by_name = {o.method: o for o in outcomes(records)}
    assert by_name["infobatch"].diverged == (1,)
    assert by_name["infobatch"].difference is None
    assert (by_name["random"].difference is None) == (method == "full")
    assert by_name["infobatch"].verdict(0.5) == "a run diverged"
    assert by_name["full"].verdict(0.5) == ""


def test_a_lower_metric_can_be_the_better_one() -> None:
    records = [replace(r, higher_is_better=False) for r in runs(["full", "random"])]
    up, down = outcomes(runs(["full", "random"]))[1].difference, outcomes(records)[1].difference
    assert down.values == tuple(-value for value in up.values)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({}, "a run once, got 'full' with seed 0 twice: drop one"),
        (
            {"seed": 1, "metric": "mIoU"},
            r"share one metric, got 'test accuracy, %' \(full, seed 0\) and 'mIoU' \(full, s",
        ),
        ({"seed": 1, "higher_is_better": False}, "share one higher_is_better, got True"),
        ({"seed": 1, "total": 9}, "share one total, got 10000 .* and 9 "),
        (
            {"seed": 1, "recipe": {"lr": 0.1}},
            "share one recipe's dataset, got 'cifar10' .* and None .*: report them apart",
        ),
        ({"seed": 1, "losses": (0.1,)}, r"an entry per epoch, got 12, 1, 12 and 12 \('full' with seed 1\)"),
        ({"seed": 1, "times": (0.0,) * 12}, "positive in every epoch, got 10000 and 0.0 at the least"),
        ({"seed": 1, "noise": (1.0,)}, "noise must have an entry per epoch, or be empty, got 1 of 12"),
        ({"seed": 1, "histograms": ((1, 2),) * 12}, "must have 48 counts for each of the 12 epochs, or be empty"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(other: dict[str, object], message: str) -> None:
    first = run("full", 0)
    with pytest.raises(ValueError, match=message):
        outcomes([first, replace(first, **other)])


def test_a_method_may_have_a_learning_rate_of_its_own() -> None:
    full = run("full", 0)
    tuned = replace(full, method="full:cost=0.5,lr=0.1", recipe={**full.recipe, "lr": 0.1})
    assert len(outcomes([tuned, full])) == 2
    with pytest.raises(ValueError, match=r"share one recipe's lr, got 0\.3 .* and 0\.1"):
        outcomes([full, replace(tuned, method="full:cost=0.5")])
    with pytest.raises(ValueError, match="share one recipe's model"):
        outcomes([replace(tuned, recipe={**full.recipe, "model": "other"}), full])


def test_the_noise_is_that_of_the_pairs_and_of_the_records_that_have_it() -> None:
    records = [run("full", 0), run("infobatch", 0, noise=(1.2,) * 12), run("infobatch", 1, noise=(1.6,) * 12)]
    full, pruned = outcomes(records)
    assert (full.noise, pruned.noise) == (1.0, pytest.approx(1.2))
    _, pruned = outcomes([run("full", 1), *records])
    assert pruned.noise == pytest.approx(1.4)
    _, pruned = outcomes([run("full", 1), *records[:2], run("infobatch", 1, noise=())])
    assert pruned.noise == pytest.approx(1.2)
    [alone] = outcomes([run("infobatch", 0, noise=())])
    assert alone.noise is alone.noise_band is None


def test_an_empty_list_of_runs_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one run, got none"):
        outcomes([])
