"""The course of training is kept per sample, in whatever order samples come."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from infobatch.static import Dynamics, forgetting


def test_each_sample_has_its_own_times() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=(5, 9))  # whether sample j is right the i-th time it is seen
    times = np.zeros(9, int)
    dynamics = Dynamics(9)
    for _ in range(5):
        for batch in np.array_split(rng.permutation(9), 3):
            right = truth[times[batch], batch]
            times[batch] += 1
            logits = torch.eye(2)[torch.from_numpy(right)]
            dynamics.update(torch.from_numpy(batch), logits, torch.ones(len(batch), dtype=torch.int64))
    assert dynamics.correct.tolist() == truth.tolist()


def test_samples_that_were_left_out_are_not_forgotten() -> None:
    right, wrong = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    dynamics = Dynamics(2)
    dynamics.update([0], right, torch.tensor([0]))
    dynamics.update([0], wrong, torch.tensor([0]))
    dynamics.update([1], right, torch.tensor([0]))
    assert dynamics.correct.tolist() == [[1, 1], [0, -1]]
    assert forgetting(dynamics.correct).tolist() == [1, 0]


@pytest.mark.parametrize("index", [[0, 0], [1]])
def test_an_index_that_does_not_name_the_batch_is_refused(index: list[int]) -> None:
    with pytest.raises(ValueError, match="index must name each of the 2 samples of the batch once"):
        Dynamics(3).update(index, torch.zeros(2, 2), torch.tensor([0, 0]))
