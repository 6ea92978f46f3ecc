import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from infobatch.records import RunRecord
from infobatch.report.statistics import Difference, pair_runs, spearman, t_quantile


@given(st.integers(1, 2000))
def test_t_quantiles_are_students(degrees):
    assert t_quantile(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), abs=2e-4)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=40))
def test_intervals_are_those_of_the_paired_t_test(changes):
    interval = Difference(tuple(changes)).interval
    if max(changes) - min(changes) > 1e-6:
        expected = stats.ttest_1samp(changes, 0).confidence_interval(0.95)
        assert interval == pytest.approx((expected.low, expected.high), abs=1e-3)


def test_one_seed_has_no_interval_and_no_verdict():
    one = Difference.of([90.0], [91.0])
    assert one.interval == (-math.inf, math.inf)
    assert one.verdict(0.5) == "too few seeds"


def test_two_seeds_that_agree_prove_nothing():
    assert Difference((0.1, 0.1)).verdict(0.5) == "too few seeds"


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ((0.0, 0.1, -0.1), "lossless within 0.5"),
        ((-2.0, -2.1, -1.9), "worse by more than 0.5"),
        ((-0.4, -0.6, -0.5), "worse by 0.50"),
        ((-0.2, -0.25, -0.21), "within the margin, worse by 0.22"),  # never "lossless"
        ((0.2, 0.25, 0.21), "lossless within 0.5"),
        ((-3.0, 3.0, 0.0), "undecided: more seeds"),
        ((0.0, math.nan, 0.0), "a run diverged"),
    ],
)
def test_verdicts(changes, verdict):
    assert Difference(changes).verdict(0.5) == verdict


def test_a_metric_that_counts_downwards_is_turned():
    assert Difference.of([2.0, 3.0], [1.5, 2.0], higher_is_better=False).values == (0.5, 1.0)


@given(st.lists(st.tuples(st.integers(-4, 4), st.floats(-5, 5)), min_size=3, max_size=30))
def test_rank_correlations_are_spearmans_also_with_ties(values):
    one, other = zip(*values, strict=True)
    correlation = spearman(one, other)
    if len(set(one)) == 1 or len(set(other)) == 1:
        assert math.isnan(correlation)
    else:
        assert correlation == pytest.approx(stats.spearmanr(one, other).statistic)


def test_pairs_share_a_seed():
    runs = [
        RunRecord(m, s, "x", True, 1, (1,), (0.0,), (1.0,), (float(s),), 0.0)
        for m, s in [("full", 0), ("full", 2), ("random", 1), ("random", 2), ("random", 0)]
    ]
    assert [(a.seed, b.seed, a.method, b.method) for a, b in pair_runs(runs, "random")] == [
        (0, 0, "full", "random"),
        (2, 2, "full", "random"),
    ]
