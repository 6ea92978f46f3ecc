import numpy as np

from infobatch.stream.bins import BINS, bin_of


def test_bins_follow_the_order_of_scores() -> None:
    scores = np.sort(np.concatenate([-np.geomspace(1e-3, 1e3, 500), [0], np.geomspace(1e-6, 1e6, 500)]))
    bins = bin_of(scores)
    assert np.all(np.diff(bins) >= 0)
    assert bins.min() >= 0
    assert bins.max() < BINS
    assert 8 * 19 <= len(np.unique(bin_of(np.geomspace(1, 2**20, 5000)))) <= 8 * 21


def test_what_is_not_a_number_has_a_bin_too() -> None:
    assert bin_of(np.array([np.nan, np.inf, -np.inf])).max() < BINS
