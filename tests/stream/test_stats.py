import math

import numpy as np
import pytest

from infobatch.stream.stats import StreamStats, Totals, sums_of


def test_the_noise_factor_is_that_of_the_probabilities() -> None:
    """Every sample that is let through speaks for 1/π of its like."""
    keep, size = np.array([0.25, 1.0]), np.array([1.0, 4.0])
    count = np.array([250, 1000])  # let through, of 1,000 each
    each = np.repeat(size, count), np.repeat(1 / keep, count)
    totals = Totals().plus(sums_of(*each))
    assert totals.trained == 1250
    assert totals.stands_for == 2000
    assert totals.noise == pytest.approx((1 / 0.25 + 4) / (1 + 4))


def test_nothing_is_said_before_anything_came_back() -> None:
    stats = StreamStats(0, 0.0, Totals().noise, 0, (), 0, 0, 0, 0)
    assert math.isnan(stats.noise)
    assert stats.saving == 0
    assert str(stats) == "stream: no loss has come back yet"


def test_losses_of_0_have_no_noise() -> None:
    assert Totals().plus(sums_of(np.zeros(3), np.ones(3))).noise == 1
