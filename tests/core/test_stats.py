"""What training cost and saved, in samples."""

import pytest

from infobatch.core.stats import EpochStats, History, Stats

EPOCHS = (EpochStats(0, 1000, 1000, 1000, 1.0), EpochStats(1, 1000, 700, 700, 1.21), EpochStats(2, 1000, 640, 320))


def stats(epochs=EPOCHS, rejected=0):
    return Stats(epochs, num_epochs=4, size=1000, expected_saving=0.25, rejected=rejected, seconds=0.0125)


def test_counts():
    s = stats()
    assert [e.saved for e in s.epochs] == [0, 300, 360]
    assert (s.seen, s.saved, s.full) == (2020, 660, 4000)
    assert s.saving == 660 / 4000


def test_before_training():
    s = stats(epochs=())
    assert (s.seen, s.saved, s.saving) == (0, 0, 0.0)
    assert "expected in all: 25.0%" in str(s)


def test_text():
    assert str(stats()).splitlines() == [
        "epoch         seen        saved    kept  noise",
        "    0        1,000            0  100.0%   1.00",
        "    1          700          300   70.0%   1.21",
        "    2          320          360   64.0%       ",
        "  all        2,020          660",
        "saved 16.5% of full training (4 epochs of 1,000 samples); expected in all: 25.0%",
        "noise: as if batches had been 1.10 times smaller, on average over the epochs",
        "time spent in infobatch itself: 0.013 s",
    ]


def test_rejected_losses_are_named_when_there_are_any():
    assert "NaN" not in str(stats())
    assert str(stats(rejected=1234)).endswith("losses that were NaN or infinite, and not stored: 1,234")


def test_an_empty_epoch_divides_by_nothing():
    assert "0.0%" in str(stats(epochs=(EpochStats(1, 0, 0, 0),)))


def test_the_expected_saving_goes_by_the_epoch_planned_last():
    history = History()
    history.enter(EpochStats(0, 100, 100, 100))
    assert history.expected_saving(EpochStats(0, 100, 100, 100), range(1, 9), 10) is None
    planned = EpochStats(1, 100, 60, 0)  # drawn, and not begun
    assert history.expected_saving(planned, range(1, 9), 10) == pytest.approx(8 * 0.4 / 10)
    history.enter(EpochStats(1, 100, 60, 60))
    assert history.expected_saving(EpochStats(2, 100, 40, 0), range(1, 9), 10) == pytest.approx((0.4 + 7 * 0.6) / 10)
