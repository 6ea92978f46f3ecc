"""Weights by sample, in three forms that say the same."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infobatch import PairWeights
from infobatch.core.plan import EpochPlan
from infobatch.core.shuffle import Order
from infobatch.core.weights import MAX_LEVELS, WeightLookup, Weights, working_dtype

CPU = torch.device("cpu")
EXPECTED = [1.0, 0.0, 4 / 3, 0.0, 1.0, 4 / 3]
CODES, LEVELS = np.array([1, 0, 2, 0, 1, 2], np.uint8), np.array([0.0, 1.0, 4 / 3])
FORMS = {
    "coded": (Weights.coded(CODES, LEVELS), EXPECTED),
    "dense": (Weights.dense(np.array(EXPECTED)), EXPECTED),
    "ones": (Weights.ones(6), [1.0] * 6),
}
each_form = pytest.mark.parametrize(("weights", "expected"), FORMS.values(), ids=FORMS)


@each_form
def test_of_and_kept(weights, expected):
    assert weights.size == 6
    assert weights.of(np.arange(6)).tolist() == expected
    assert weights.of(np.array([5, 0, 0])).tolist() == [expected[5], expected[0], expected[0]]
    assert weights.kept().tolist() == [i for i, weight in enumerate(expected) if weight]
    assert weights.kept().dtype == np.int32


@each_form
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lookup_gives_the_same_in_the_loss_dtype(weights, expected, dtype):
    index = torch.tensor([5, 2, 0, 1, 2])
    found = weights.lookup(CPU, dtype).of(index)
    assert found.dtype == dtype
    assert found.tolist() == torch.tensor(expected, dtype=torch.float64)[index].to(dtype).tolist()


def test_only_ones_is_uniform():
    assert [weights.uniform for weights, _ in FORMS.values()] == [False, False, True]


def test_kept_is_the_callers_own():
    weights = Weights.ones(4)
    weights.kept()[:] = 0
    assert weights.kept().tolist() == [0, 1, 2, 3]


def test_a_full_epoch_takes_no_memory_per_sample():
    lookup = Weights.ones(10_000_000).lookup(CPU, torch.float32)
    assert lookup.codes.untyped_storage().nbytes() == 1
    assert lookup.of(torch.tensor([0, 9_999_999])).tolist() == [1, 1]


def test_shapes_stay_from_epoch_to_epoch():
    """So that a compiled step is not rebuilt because a plan has another number of strata."""
    full, few = (w.lookup(CPU, torch.float32) for w in (Weights.ones(6), Weights.coded(CODES, LEVELS)))
    assert full.levels.shape == few.levels.shape == (MAX_LEVELS,)
    assert full.codes.shape == few.codes.shape


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.integers(2, MAX_LEVELS), st.integers(0, 1000))
def test_any_number_of_levels(count, seed):
    rng = np.random.default_rng(seed)
    levels = np.append(0.0, 1 + rng.random(count - 1))
    codes = rng.integers(0, count, 50).astype(np.uint8)
    weights = Weights.coded(codes, levels)
    assert weights.of(np.arange(50)).tolist() == levels[codes].tolist()
    looked_up = weights.lookup(CPU, torch.float64).of(torch.arange(50))
    assert looked_up.tolist() == levels[codes].tolist()


@pytest.mark.parametrize(("levels", "codes"), [([1.0, 2.0], [0, 1]), ([0.0] + [1.0] * MAX_LEVELS, [0, 1])])
def test_a_code_for_left_out_is_needed_and_codes_are_bytes(levels, codes):
    with pytest.raises(AssertionError):
        Weights.coded(np.array(codes, np.uint8), np.array(levels))


@pytest.mark.parametrize(
    ("loss", "working"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
    ],
)
def test_losses_are_weighted_in_a_precision_that_serves_them(loss, working):
    tensor = torch.zeros(3, dtype=loss)
    assert working_dtype(tensor) == working
    lookup = WeightLookup(None, torch.ones(6, dtype=working))
    assert lookup.fits(tensor)
    assert not lookup.fits(tensor.to("meta"))
    other = torch.float32 if working == torch.float64 else torch.float64
    assert not WeightLookup(None, torch.ones(6, dtype=other)).fits(tensor)


# -- pairs ------------------------------------------------------------------------------------------------------------


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


def test_noise_is_the_same_to_the_bit_with_the_unused_levels_of_a_loaded_state():
    rng = np.random.default_rng(0)
    for size in range(20, 300, 7):
        codes = rng.integers(0, 6, size).astype(np.uint8)
        levels = np.concatenate([[0.0, 1.0], 1 + rng.random(4)])
        padded = np.concatenate([levels, np.zeros(250)])
        score = rng.exponential(size=size).astype(np.float32)
        assert Weights.coded(codes, levels).noise(score) == Weights.coded(codes, padded).noise(score)
