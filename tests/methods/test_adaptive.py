"""The noise budget: against its equations, over all outcomes, and where scores say much or nothing."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
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


def slow_keep(pairs, now, size, noise, floor):
    """π of every sample by the equations. ``pairs`` are (prediction before, loss then, weight) of trained samples."""
    ranked = sorted(prediction for prediction, _, _ in pairs)
    most = min(32, len(pairs) // 4)  # bins
    edges = sorted({ranked[k * len(ranked) // most] for k in range(1, most)})

    def bin_of(value):
        return sum(value >= edge for edge in edges)

    inside = [[(size(loss), w) for p, loss, w in pairs if bin_of(p) == b] for b in range(len(edges) + 1)]
    total = [sum(w for _, w in members) for members in inside]
    mean = [sum(w * m for m, w in members) / t for members, t in zip(inside, total, strict=True)]
    upper = [
        average + math.sqrt(sum((w * (m - average)) ** 2 for m, w in members)) / t
        for members, average, t in zip(inside, mean, total, strict=True)
    ]

    def pooled(a, b):
        return sum(u * t for u, t in zip(upper[a : b + 1], total[a : b + 1], strict=True)) / sum(total[a : b + 1])

    bins = range(len(upper))  # the rising values nearest to `upper`, by the min-max formula
    expected = [max(min(pooled(a, b) for b in bins if b >= k) for a in bins if a <= k) for k in bins]
    m = np.array([expected[bin_of(value)] for value in now])
    c = 0.0
    while True:  # c by scanning a fine grid upwards
        keep = np.minimum(1, np.maximum(floor, c * np.sqrt(m)))
        if sum(m / keep) <= (1 + noise) * sum(m):
            return keep
        c = c * 1.001 + 1e-6


def rounded(value):
    """To eight binary digits, towards 0."""
    exponent = math.floor(math.log2(value)) - 7
    return math.floor(value / 2**exponent) * 2**exponent


def losses_of(epoch, size=SIZE):
    """Losses that fall, with chance."""
    chance = np.random.default_rng(100 + epoch).uniform(0.2, 1.5, size)
    return (scores_of(size, seed=1) * chance / (1 + epoch)).astype(np.float32)


@pytest.mark.parametrize("noise", [0.05, 0.2, 0.5])
@pytest.mark.parametrize(
    ("size", "function"),
    [("smooth", lambda x: x), ("cross-entropy", lambda x: (1 - math.exp(-x)) ** 2), ("norm", lambda x: x * x)],
)
def test_probabilities_are_those_of_the_equations(size, function, noise):
    """Over four epochs, of which the later ones train a part of the samples."""
    method = methods.create("infobatch-adaptive", noise=noise, size=size)
    memory, scores = blank_memory(method, SIZE), np.full(SIZE, np.nan, np.float32)
    seen: list[list[tuple[int, float]]] = [[] for _ in range(SIZE)]  # (epoch, loss) of each sample

    def prediction(sample, before):
        told = [(0.8 ** (before - e), loss) for e, loss in seen[sample] if e < before]
        return rounded(sum(w * loss for w, loss in told) / sum(w for w, _ in told))

    weights = Weights.ones(SIZE)
    for epoch in range(5):
        if epoch >= 2:
            about = Epoch(epoch, range(1, 10), 10, 0, weights, memory)
            weight = weights.of(np.arange(SIZE))
            pairs = [
                (prediction(i, epoch - 1), float(scores[i]), float(weight[i])) for i in range(SIZE) if weight[i] > 0
            ]
            now = [prediction(i, epoch) for i in range(SIZE)]
            expected = slow_keep(pairs, now, function, noise, 0.1)
            weights = method.select(scores, about, generator(0, epoch))
            shown = keep_of(weights, SIZE) > 0
            for probability in np.unique(expected.round(9)):  # a whole number of samples is kept of each group
                members = np.isclose(expected, probability)
                assert abs(np.count_nonzero(shown & members) - probability * np.count_nonzero(members)) <= 1.1
            assert weights.of(np.arange(SIZE)).sum() == pytest.approx(SIZE)
        trained = np.random.default_rng(epoch).permutation(weights.kept())
        scores[trained] = losses_of(epoch)[trained]
        method.observe(scores, trained, memory)
        for sample in trained.tolist():
            seen[sample].append((epoch, float(scores[sample])))


@given(
    st.lists(st.tuples(st.floats(0, 9), st.floats(0.1, 9)), min_size=1, max_size=8),
)
def test_rising_is_the_min_max_formula(pairs):
    values, weight = (np.array(each) for each in zip(*pairs, strict=True))
    bins = range(len(values))

    def pooled(a, b):
        return np.average(values[a : b + 1], weights=weight[a : b + 1])

    expected = [max(min(pooled(a, b) for b in bins if b >= k) for a in bins if a <= k) for k in bins]
    np.testing.assert_allclose(adaptive.rising(values, weight), expected, atol=1e-9)


def test_the_budget_holds_for_the_losses_to_come():
    """Not only for those it was planned by: few pairs, heavy tails, and samples whose loss jumps by chance."""
    base = scores_of(2000, spread=2.0)
    told = []
    for run in range(4):
        chance = np.random.default_rng(run)
        method = methods.create("infobatch-adaptive", noise=0.1)
        memory, scores = blank_memory(method, 2000), np.full(2000, np.nan, np.float32)
        weights = Weights.ones(2000)
        for epoch in range(30):
            if epoch >= 2:
                weights = method.select(
                    scores, Epoch(epoch, range(2, 30), 30, 0, weights, memory), generator(run, epoch)
                )
            losses = (base * chance.exponential(size=2000)).astype(np.float32)
            told.append(weights.noise(losses))
            scores[weights.kept()] = losses[weights.kept()]
            method.observe(scores, weights.kept(), memory)
    assert np.mean(told) < 1.12


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


def test_losses_may_be_negative():
    base = torch.from_numpy(scores_of(6000, spread=2.0))
    kept = [trained(lambda index, _, by=by: base[index] - by).stats.epochs[-1].kept for by in (0.0, 5.0)]
    assert kept[0] == pytest.approx(kept[1], rel=0.1)
    assert 500 < kept[1] < 5500


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
        ({"saving": 0.85}, "saving=0.85 cannot be reached: 6 of 8 epochs"),
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
