"""Weights of pairs, over all subsets that a plan can keep."""

import itertools

import numpy as np
import pytest
import torch

from infobatch.core.pairs import PairWeights
from infobatch.core.plan import EpochPlan
from infobatch.core.shuffle import Order
from infobatch.core.weights import Weights


@pytest.mark.parametrize(("pruned", "kept_of_low"), [(5, 2), (4, 3), (6, 2)])
def test_every_ordered_pair_counts_as_often_as_with_full_data(pruned, kept_of_low):
    """Of a group of `pruned` samples some are kept; three more are always in. E[weight of (i, j)] = 1 / (N - 1)."""
    size = pruned + 3
    counted, cases = np.zeros((size, size)), list(itertools.combinations(range(pruned), kept_of_low))
    for low in cases:
        values = np.ones(size)
        values[:pruned] = 0
        values[list(low)] = pruned / kept_of_low
        kept = np.flatnonzero(values)
        plan = EpochPlan(1, Order(kept.copy()), Weights.dense(values), size)
        index, partner = torch.cartesian_prod(torch.from_numpy(kept), torch.from_numpy(kept)).T
        index, partner = index[index != partner], partner[index != partner]
        relative = PairWeights(plan, torch.device("cpu"), torch.float64).relative(index, partner)
        counted[index, partner] += values[index] * relative.numpy() / (len(kept) - 1)  # so often are they partners
    np.testing.assert_allclose(counted / len(cases), (1 - np.eye(size)) / (size - 1), rtol=1e-12)
