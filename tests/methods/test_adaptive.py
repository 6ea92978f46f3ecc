"""The noise budget: against its equations, over all outcomes, and where scores say much or nothing."""

import math

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from chance import is_unbiased
from infobatch import InfoBatch, methods
from infobatch.core.method import blank_memory
from infobatch.core.plan import generator
from infobatch.core.weights import Weights
from infobatch.methods import Epoch, adaptive

SIZE = 400


def scores_of(size=SIZE, spread=1.5, seed=0):
    return np.random.default_rng(seed).lognormal(-1, spread, size).astype(np.float32)


def after_two_epochs(method, first, second, *, before=None, index=2, num_epochs=10, batch=0, pruned_before=0):
    """The third epoch, when all samples were trained in the two before with these losses."""
    memory = blank_memory(method, len(first))
    for losses in (first, second):
        method.observe(losses, np.flatnonzero(~np.isnan(losses)), memory)
    return Epoch(index, range(1, num_epochs), num_epochs, pruned_before, before, memory, batch)


def keep_of(weights, size):
    """The probability of each sample, as far as the draw shows it: 1/weight."""
    values = weights.of(np.arange(size))
    return np.divide(1, values, out=np.zeros(size), where=values > 0)


# -- against the equations -------------------------------------------------------------------------------------------


def slow_keep(before, now, loss, size, noise, floor):
    """π of every sample by the equations: bins of equally many pairs, then c by scanning a fine grid upwards."""
    ranked = sorted(before)
    edges = sorted({ranked[k * len(ranked) // adaptive.BINS] for k in range(1, adaptive.BINS)})

    def bin_of(value):
        return sum(value >= edge for edge in edges)

    found = {}
    for prediction, brought in zip(before, loss, strict=True):
        found.setdefault(bin_of(prediction), []).append(size(brought))
    mean = {b: sum(values) / len(values) for b, values in found.items()}
    m = [mean[bin_of(value)] for value in now]
    c = 0.0
    while True:
        keep = [min(1.0, max(floor, c * math.sqrt(each))) for each in m]
        if sum(each / p for each, p in zip(m, keep, strict=True)) <= (1 + noise) * sum(m):
            return keep
        c = c * 1.0005 + 1e-4


@pytest.mark.parametrize("noise", [0.05, 0.2, 0.5])
@pytest.mark.parametrize(
    ("size", "function"),
    [("smooth", lambda x: x), ("cross-entropy", lambda x: (1 - math.exp(-x)) ** 2), ("norm", lambda x: x * x)],
)
def test_probabilities_are_those_of_the_equations(size, function, noise, monkeypatch):
    monkeypatch.setattr(adaptive, "PREDICTORS", {"last loss": 1.0, "the same": 1.0})
    method = methods.create("infobatch-adaptive", noise=noise, size=size)
    first, second = scores_of(seed=1), scores_of(seed=1) * np.random.default_rng(2).uniform(0.2, 1.5, SIZE)
    second = second.astype(np.float32)
    weights = method.select(second, after_two_epochs(method, first, second), generator(0, 2))
    expected = np.array(slow_keep(first.tolist(), second.tolist(), second.tolist(), function, noise, 0.1))
    kept = keep_of(weights, SIZE)
    shown = kept > 0
    # Of n samples of a bin a whole number is kept: π is off by less than one of them.
    for probability in np.unique(expected.round(9)):
        members = np.isclose(expected, probability)
        assert abs(np.count_nonzero(shown & members) - probability * np.count_nonzero(members)) <= 1.01
    assert weights.of(np.arange(SIZE)).sum() == pytest.approx(SIZE)


def test_the_noise_factor_is_within_the_budget_and_the_saving_grows_with_it():
    first = scores_of(20_000)
    kept = []
    for noise in (0.02, 0.1, 0.3):
        method = methods.create("infobatch-adaptive", noise=noise)
        weights = method.select(first, after_two_epochs(method, first, first), generator(0, 2))
        assert weights.noise(first) == pytest.approx(1 + noise, rel=0.02)
        kept.append(weights.count)
    assert kept == sorted(kept, reverse=True)


def test_no_other_rule_of_the_same_noise_keeps_fewer():
    """Against the mean rule, the quantile rule and chance, each at the noise it has."""
    scores = scores_of(20_000)
    for name in ("infobatch", "infobatch-quantile"):
        rule = methods.create(name)
        theirs = rule.select(scores, Epoch(2, range(1, 10), 10, 0), generator(0, 2))
        method = methods.create("infobatch-adaptive", noise=theirs.noise(scores) - 1)
        ours = method.select(scores, after_two_epochs(method, scores, scores), generator(0, 2))
        assert ours.count < theirs.count


# -- over all outcomes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strata", [None, [0, 1, 0, 1, 0, 1, 0, 1]])
@pytest.mark.parametrize("batch", [0, 3])
def test_every_sample_counts_as_often_as_it_should(strata, batch, monkeypatch):
    monkeypatch.setattr(adaptive, "BINS", 3)
    method = methods.create("infobatch-adaptive", noise=0.4, strata=strata)
    scores = np.array([0.01, 0.02, 0.5, 3.0, 0.03, 0.6, 4.0, 0.02], np.float32)
    about = after_two_epochs(method, scores, scores, batch=batch)
    assert method.select(scores, about, generator(0, 1)).count < 8
    assert is_unbiased(lambda rng: method.select(scores, about, rng))


# -- where scores say much, and where they say nothing ----------------------------------------------------------------


def trained(loss_of, num_epochs=8, size=6000, **options):
    train_data = InfoBatch(TensorDataset(torch.arange(size)), num_epochs, method="infobatch-adaptive", **options)
    loader = DataLoader(train_data, 100, sampler=train_data.sampler)
    for _ in range(num_epochs):
        for (index,) in loader:
            train_data.update(loss_of(index, train_data.epoch))
    return train_data


def test_where_scores_say_nothing_next_to_nothing_is_pruned():
    chance = torch.Generator().manual_seed(0)
    train_data = trained(lambda index, _: torch.rand(len(index), generator=chance), anneal=False)
    kept = [e.kept / e.total for e in train_data.stats.epochs]
    assert kept[:2] == [1, 1]
    assert all(share == pytest.approx(1 / 1.1, abs=0.02) for share in kept[2:])


def test_where_scores_are_skewed_most_is_pruned():
    easy = torch.from_numpy(scores_of(6000, spread=3.5))
    train_data = trained(lambda index, _: easy[index], anneal=False)
    assert all(e.kept / e.total < 0.4 for e in train_data.stats.epochs[2:])
    assert all(e.noise == pytest.approx(1.1, abs=0.02) for e in train_data.stats.epochs[2:-1])


def test_an_average_is_taken_where_single_losses_are_noisy():
    base, chance = torch.from_numpy(scores_of(6000, spread=2.0)), torch.Generator().manual_seed(1)

    def noisy(index, _):
        return base[index] * torch.empty(len(index)).exponential_(generator=chance)

    kept = {}
    for predictors in ({"last loss": 1.0, "the same": 1.0}, adaptive.PREDICTORS):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(adaptive, "PREDICTORS", predictors)
            kept["average" in predictors] = trained(noisy, 12, anneal=False).stats.epochs[-1].kept
    assert kept[True] < kept[False]


@pytest.mark.parametrize("saving", [0.1, 0.4])
def test_a_wanted_saving_is_reached(saving):
    base = torch.from_numpy(scores_of(6000))
    train_data = trained(lambda index, epoch: base[index] / (epoch + 1), 12, saving=saving)
    assert train_data.stats.saving == pytest.approx(saving, abs=0.01)
    assert train_data.stats.expected_saving == pytest.approx(saving, abs=0.01)


def test_labels_are_pruned_alike():
    labels = np.arange(6000) % 3
    base = torch.from_numpy(scores_of(6000))
    train_data = trained(lambda index, _: base[index], strata=labels, anneal=False)
    left_out = np.setdiff1d(np.arange(6000), train_data.plan.indices)
    assert len(left_out) > 1000
    by_bin = np.bincount(labels[left_out])
    assert by_bin.max() - by_bin.min() < 200


def test_all_losses_zero():
    train_data = trained(lambda index, _: torch.zeros(len(index)), anneal=False)
    assert train_data.stats.epochs[-1].kept / 6000 == pytest.approx(0.1, abs=0.02)  # the floor


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"noise": -0.1}, "noise must be a number from 0 on, got -0.1"),
        ({"noise": "much"}, "noise must be a number"),
        ({"noise": math.inf}, "noise must be a number"),
        ({"size": "gradient"}, "size must be one of 'smooth', 'cross-entropy', 'norm', got 'gradient'"),
        ({"floor": 0}, r"floor must lie in \(0, 1\]"),
        ({"saving": 1}, r"saving must lie in \(0, 1\)"),
        ({"saving": 0.85}, "saving=0.85 cannot be reached: 5 of 8 epochs"),
        ({"strata": [0, 1]}, "strata must hold one label per sample"),
    ],
)
def test_wrong_options_are_named(options, said):
    with pytest.raises(ValueError, match=said):
        InfoBatch(range(20), 8, method="infobatch-adaptive", **options)


def test_noise_of_weights_by_hand():
    weights = Weights.coded(np.array([1, 0, 2, 2], np.uint8), np.array([0, 1.0, 2.0]))
    size = np.array([3.0, 9.0, 1.0, 2.0])
    assert weights.noise(size) == pytest.approx((3 + 4 * 3) / (3 + 2 * 3))
    assert Weights.dense(weights.of(np.arange(4))).noise(size) == weights.noise(size)
    assert weights.noise(np.array([np.nan, 1, -2, np.inf])) == Weights.ones(4).noise(size) == 1.0
