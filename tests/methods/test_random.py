"""Random pruning: Random* of table 1, and the rescaled, annealed "Random" of table 5."""

import numpy as np
import pytest

from infobatch import InfoBatch, methods
from infobatch.core.plan import generator
from infobatch.methods import Epoch
from infobatch.methods.random import RandomSubset

UNKNOWN = np.full(1000, np.nan, np.float32)


def weights(method, epoch):
    about = Epoch(epoch, range(1, 50), 60, pruned_before=0)
    return method.select(UNKNOWN, about, generator(0, epoch)).of(np.arange(1000))


def test_the_card():
    info = methods.info("random")
    assert info is RandomSubset.info
    assert (info.unbiased, info.anneals) == (False, False)


def test_a_fresh_subset_every_epoch_that_asks_for_no_score():
    method = RandomSubset(0.3)
    first, second = weights(method, 1), weights(method, 2)
    assert set(first) == {0.0, 1.0}
    assert (first == 0).sum() == (second == 0).sum() == 300
    assert np.any(first != second)


def test_rescaled_as_in_table_5():
    assert set(weights(RandomSubset(0.3, rescale=True), 1)) == {0.0, 1000 / 700}


@pytest.mark.parametrize(("asked", "last_pruned"), [({}, 9), ({"delta": 0.7}, 6), ({"anneal": True}, 8)])
def test_annealing_is_off_unless_asked_for(asked, last_pruned):
    train_data = InfoBatch(range(10), num_epochs=10, method="random", **asked)
    pruned = []
    for epoch in range(12):
        train_data.set_epoch(epoch)
        if len(train_data.plan) < 10:
            pruned.append(epoch)
    assert pruned == list(range(1, last_pruned + 1))


def test_expected_saving_and_options():
    method = RandomSubset(0.4)
    assert method.expected_saving(range(1, 10), 10) == pytest.approx(0.36)
    assert method.options() == {"ratio": 0.4, "saving": None, "rescale": False, "strata": None}
    with pytest.raises(ValueError, match="ratio must lie in"):
        RandomSubset(1.0)
