"""The window: weights cut to batches, and room for scores that are booked later."""

import pytest
import torch

from infobatch.core.window import Window, weighted_sum


@pytest.fixture
def window():
    return Window(torch.tensor([5, 3, 8, 1, 7]), torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), batch=2)


def test_batches_are_weighed_in_turn_and_noted(window):
    assert window.weigh_and_note(torch.tensor([1.0, 1.0]), torch.tensor([0.1, 0.2])) == 3
    assert window.weigh_and_note(torch.tensor([2.0, 1.0]), torch.tensor([0.3, 0.4])) == 10
    index, score = window.noted()
    assert index.tolist() == [5, 3, 8, 1]
    torch.testing.assert_close(score, torch.tensor([0.1, 0.2, 0.3, 0.4]))


def test_the_last_batch_may_be_short(window):
    for size in (2, 2, 1):
        assert window.fits(size, torch.zeros(size))
        assert not window.fits(3 - size, torch.zeros(3 - size))
        window.weigh_and_note(torch.ones(size), torch.ones(size))
    assert not window.fits(1, torch.zeros(1))
    assert len(window.noted()[0]) == 5


def test_it_fits_only_its_precision(window):
    assert window.fits(2, torch.zeros(2, dtype=torch.bfloat16))
    assert not window.fits(2, torch.zeros(2, dtype=torch.float64))


def test_without_weights_it_is_the_plain_mean():
    loss = torch.rand(4, requires_grad=True)
    mean = Window(torch.arange(4), None, batch=4).weigh_and_note(loss, loss)
    assert torch.equal(mean, loss.mean())


def test_the_sum_is_in_the_weights_precision():
    assert weighted_sum(torch.ones(2, dtype=torch.float16), torch.tensor([65504.0, 65504.0])) == 131008
