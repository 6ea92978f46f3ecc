"""Shares of the samples per epoch and bin."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from infobatch.report.distribution import BINS, bin_scores

SCORES = st.lists(st.floats(-1e5, 1e5, width=32), min_size=1, max_size=30)


@given(st.lists(SCORES, min_size=1, max_size=3))
def test_shares_add_up_and_edges_hold_all(epochs: list[list[float]]) -> None:
    parts = [(np.array(scores, np.float64), np.ones(len(scores))) for scores in epochs]
    made = bin_scores(range(len(parts)), parts)
    assert np.allclose(np.sum(made["shares"], axis=1), 1, atol=1e-3)
    assert len(made["edges"]) == BINS + 1
    assert np.isfinite(made["edges"]).all()
    assert all(0 <= place <= BINS and np.isfinite(value) for place, value in made["ticks"])


def test_equal_scores_share_their_bins() -> None:
    made = bin_scores([4], [(np.array([0.001, 1.0, 10.0]), np.array([0.0, 90.0, 10.0]))])
    assert made["epochs"] == [4]
    assert [value for _, value in made["ticks"]] == [1.0, 10.0]
    assert sum(made["shares"][0][: BINS // 2]) > 0.85


def test_nothing_known_draws_nothing() -> None:
    assert bin_scores([0], [(np.zeros(0), np.zeros(0))])["shares"] == []
