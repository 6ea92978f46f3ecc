"""Part of a batch as a whole one. With methods that choose: tests/methods/test_dynamic_twins.py."""

import pytest
import torch

from infobatch.core.choice import Choice

LOOK = torch.tensor([5.0, 1.0, 7.0, 3.0])
CHOSEN = Choice(torch.tensor([0, 2]), LOOK, torch.tensor([10, 11, 12, 13]))


def test_losses_are_spread_over_the_batch_with_their_mean():
    loss = torch.tensor([4.0, 6.0], requires_grad=True)
    whole = CHOSEN.spread(loss)
    assert whole.tolist() == [8.0, 0.0, 12.0, 0.0]
    assert whole.mean() == loss.mean()
    whole.mean().backward()
    assert loss.grad.tolist() == [0.5, 0.5]


def test_scores_of_the_chosen_samples_are_the_newer_ones():
    assert CHOSEN.renewed(torch.tensor([4.0, 6.0])).tolist() == [4.0, 1.0, 6.0, 3.0]
    assert CHOSEN.passed_over == 2


def test_strangers_are_counted():
    assert CHOSEN.strangers(torch.tensor([10, 12])) == 0
    assert CHOSEN.strangers(torch.tensor([12, 10])) == 2


def test_another_number_of_losses_or_a_missing_index_is_refused():
    with pytest.raises(ValueError, match="got 3, but choose\\(\\) returned 2 positions"):
        CHOSEN.check(torch.ones(3), torch.arange(3))
    with pytest.raises(ValueError, match="or to neither"):
        CHOSEN.check(torch.ones(2), None)
