"""Whose a batch is, when the epoch before has not given all its batches back. Real loops: tests/test_books.py."""

import numpy as np
import pytest
import torch

from infobatch import DriftError
from infobatch.core.late import LateBatches
from infobatch.core.plan import EpochPlan, Slice
from infobatch.core.position import Position
from infobatch.core.shuffle import Order
from infobatch.core.weights import Weights

SIZE = 8


class Loader:
    """Batches of 2, of which ``delivered`` have been delivered."""

    batch_size, drop_last, restarted, open, source = 2, False, False, True, "test"

    def __init__(self, delivered):
        self.delivered = delivered


def an_epoch(number, order, delivered, heavy=()):
    weights = np.zeros(SIZE)
    weights[order] = 1.0
    weights[list(heavy)] = 2.0
    plan = EpochPlan(number, Order(np.array(order)), Weights.dense(weights), SIZE)
    position = Position(Slice(plan.order), SIZE)
    position.open(Loader(delivered))
    return plan, position


@pytest.fixture
def late():
    """Of epoch 0, samples 0 to 5 in this order, the batches (0, 1) and (2, 3) came back, and (4, 5) did not."""
    plan, position = an_epoch(0, [0, 1, 2, 3, 4, 5], 3)
    position.name(torch.tensor([0, 1]))
    position.name(torch.tensor([3, 2]))
    return LateBatches.of(plan, position)


def test_they_are_what_was_delivered_and_did_not_come_back(late):
    assert late.samples.tolist() == [4, 5]


def test_nothing_is_late_where_everything_came_back_or_batches_are_known_by_position():
    plan, position = an_epoch(0, [0, 1, 2, 3], 2)
    assert LateBatches.of(plan, position) is None
    for batch in ([0, 1], [2, 3]):
        position.name(torch.tensor(batch))
    assert LateBatches.of(plan, position) is None


def test_a_batch_not_delivered_in_this_epoch_is_late(late):
    plan, position = an_epoch(1, [0, 1, 4, 5], 1, heavy=[4])
    assert late.claim(torch.tensor([5, 4]), plan, position)
    assert not late.claim(torch.tensor([4, 5]), plan, position)  # it came back: this one is another


def test_part_of_a_batch_may_be_late(late):
    plan, position = an_epoch(1, [0, 1, 2, 3], 1)
    assert late.claim(torch.tensor([5]), plan, position)
    assert late.claim(torch.tensor([4, 4]), plan, position)


def test_any_other_batch_is_of_this_epoch(late):
    plan, position = an_epoch(1, [4, 0, 5, 1], 1)
    assert not late.claim(torch.tensor([4, 0]), plan, position)


def test_a_batch_that_may_be_either_is_late_if_it_weighs_the_same_and_an_error_if_not(late):
    plan, position = an_epoch(1, [4, 5, 0, 1], 1, heavy=[4])
    with pytest.raises(DriftError, match="last one of the epoch before or the first one of this epoch"):
        late.claim(torch.tensor([4, 5]), plan, position)
    assert late.claim(torch.tensor([4, 5]), *an_epoch(1, [4, 5, 0, 1], 1))


def test_after_a_batch_of_this_epoch_came_back_what_was_delivered_in_it_is_its_own(late):
    plan, position = an_epoch(1, [0, 1, 4, 5], 2, heavy=[4])
    position.name(torch.tensor([0, 1]))
    assert not late.claim(torch.tensor([4, 5]), plan, position)
