"""The epoch's plan: against the slow twin through the facade, uniformly shuffled, the same everywhere."""

import itertools
import math
from collections import Counter
from dataclasses import FrozenInstanceError
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

import reference
from chance import is_unbiased
from infobatch import InfoBatch
from infobatch.core.draw import fixed_size
from infobatch.core.method import Epoch
from infobatch.core.plan import EpochPlan, Slice, cut_to_batches, generator, pruning_epochs, shuffled, surplus
from infobatch.core.shuffle import Order
from infobatch.core.weights import Weights


def scored(scores, **options):
    """An InfoBatch whose table holds these scores; NaN: this sample was never seen."""
    train_data = InfoBatch(range(len(scores)), **options)
    known = [i for i, score in enumerate(scores) if not math.isnan(score)]
    if known:
        train_data.update(torch.tensor([scores[i] for i in known]), torch.tensor(known))
    return train_data


def by_sample(plan, size):
    weights = [0.0] * size
    for index, weight in zip(plan.indices.tolist(), plan.weights.tolist(), strict=True):
        assert weights[index] == 0, "a sample is in the plan twice"
        weights[index] = weight
    return weights


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    scores=st.lists(st.sampled_from([0.25, 0.5, math.nan]) | st.floats(0, 10, width=32), min_size=1, max_size=25),
    num_epochs=st.integers(1, 12),
    epoch=st.integers(1, 14),
    delta=st.integers(0, 40).map(lambda n: n / 40),
    ratio=st.integers(0, 99).map(lambda n: n / 100),
    rescale=st.booleans(),
    warmup=st.integers(0, 4),
    annealed=st.booleans(),
)
def test_every_epoch_agrees_with_the_reference(scores, num_epochs, epoch, delta, ratio, rescale, warmup, annealed):
    train_data = scored(
        scores,
        num_epochs=num_epochs,
        ratio=ratio,
        delta=delta,
        rescale=rescale,
        warmup=warmup,
        anneal=annealed,
    )
    train_data.set_epoch(epoch)
    expected = []
    if reference.is_pruned(epoch, num_epochs, delta if annealed else 1, warmup):
        expected = reference.groups(scores, reference.below_mean(ratio), rescale=rescale)
    assert train_data.plan.epoch == epoch
    assert train_data.plan.total == len(scores)
    reference.check(by_sample(train_data.plan, len(scores)), expected)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    history=st.lists(st.lists(st.floats(0, 5, width=32), min_size=12, max_size=12), min_size=2, max_size=6),
    seed=st.integers(0, 50),
)
def test_scores_of_pruned_samples_are_kept_from_epoch_to_epoch(history, seed):
    """Eq. 4, epoch by epoch: H(z) stays where z was left out, and is the loss where it was trained on."""
    train_data = InfoBatch(range(12), num_epochs=8, delta=1.0, seed=seed)
    table = [math.nan] * 12
    for epoch, losses in enumerate(history):
        train_data.set_epoch(epoch)
        expected = reference.groups(table, reference.below_mean(0.5)) if epoch else []
        reference.check(by_sample(train_data.plan, 12), expected)
        kept = train_data.plan.indices.tolist()
        train_data.update(torch.tensor([losses[i] for i in kept]), torch.tensor(kept))
        table = [losses[i] if i in kept else score for i, score in enumerate(table)]
        assert train_data.scores.tolist() == table


def test_every_order_is_equally_likely():
    orders = Counter(tuple(shuffled(e, Weights.ones(4), generator(5, e)).indices.tolist()) for e in range(6_000))
    assert set(orders) == set(itertools.permutations(range(4)))
    assert 1e-3 < stats.chisquare(list(orders.values())).pvalue < 1 - 1e-3


def test_a_plan_is_given_by_seed_epoch_and_scores_alone():
    scores = np.random.default_rng(0).exponential(size=4099).astype(np.float32).tolist()

    def plan(epoch=2, **options):
        train_data = scored(scores, num_epochs=8, **options)
        train_data.set_epoch(epoch)
        return train_data.plan.indices.tolist()

    state = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002 (that it is left alone)
    assert plan() == plan()
    assert plan() != plan(seed=1)
    assert sorted(plan()) != sorted(plan(epoch=3))
    torch.manual_seed(99)
    assert plan() == plan()
    torch.set_rng_state(state[1])
    plan()
    assert np.array_equal(np.random.get_state()[1], state[0])  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), state[1])


def test_a_known_plan_stays_the_same_on_every_platform():
    """Held by value: a change of numpy, of the platform or of the draw itself shows here."""
    train_data = scored([0.1, 0.2, 0.3, 0.4, 0.5, 5.0, 6.0, 7.0], num_epochs=4)
    train_data.set_epoch(1)
    assert train_data.plan.indices.tolist() == [5, 0, 1, 3, 6, 7]
    assert set(train_data.plan.weights.tolist()) == {1.0, 5 / 3}


def test_plans_do_not_depend_on_the_number_of_threads():
    scores = torch.from_numpy(np.random.default_rng(3).exponential(size=5_592_409)).float()
    before = torch.get_num_threads()
    plans = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            train_data = InfoBatch(range(len(scores)), num_epochs=4)
            train_data.update(scores, torch.arange(len(scores)))
            train_data.set_epoch(1)
            plans.append(train_data.plan)
    finally:
        torch.set_num_threads(before)
    one, three = plans
    assert len(one) < len(scores)
    assert np.array_equal(one.indices, three.indices)
    assert np.array_equal(one.weights, three.weights)


@pytest.mark.parametrize("options", [{}, {"index_key": "i"}, {"method": "infobatch-adaptive", "noise": 0.5}], ids=str)
def test_the_users_default_device_does_not_matter(options):
    """As after torch.set_default_device("cuda"), by the one other device every machine has."""
    losses, index = torch.arange(50.0), torch.arange(50)

    def plan():
        train_data = InfoBatch(range(50), num_epochs=6, **options)
        for epoch in range(3):
            train_data.set_epoch(epoch)
            kept = index[train_data.plan.indices.tolist()]
            train_data.update(losses[kept], kept)
        train_data.load_state_dict(train_data.state_dict())
        assert float(train_data.loss) > 0
        return train_data.plan

    plain = plan()
    with torch.device("meta"):
        elsewhere = plan()
    assert elsewhere.indices.tolist() == plain.indices.tolist()
    assert elsewhere.weights.tolist() == plain.weights.tolist()


def test_a_plan_is_frozen():
    plan = shuffled(0, Weights.ones(5), generator(0, 0))
    with pytest.raises(FrozenInstanceError):
        plan.epoch = 1
    with pytest.raises(ValueError, match="read-only"):
        plan.indices[0] = 3
    with pytest.raises(ValueError, match="read-only"):
        plan.weights[0] = 3


def test_a_plan_says_what_it_is():
    plan = shuffled(7, Weights.dense(np.array([0, 2.0, 0, 2.0])), generator(0, 7))
    assert isinstance(plan, EpochPlan)
    assert repr(plan) == "EpochPlan(epoch=7, kept 2 of 4)"
    assert len(plan) == 2
    assert plan.weights.tolist() == [2.0, 2.0]


def test_indices_are_integers_as_small_as_they_may_be():
    assert shuffled(0, Weights.ones(5), generator(0, 0)).indices.dtype == np.int32


@pytest.mark.parametrize(
    "order", [[3, 1, 1, 0, 2], (3, 1, 1, 0, 2), np.array([3, 1, 1, 0, 2]), torch.tensor([3, 1, 1, 0, 2])]
)
def test_the_users_own_order_less_the_samples_left_out(order):
    weights = Weights.coded(np.array([1, 2, 0, 1], np.uint8), np.array([0, 1.0, 2.0]))
    plan = shuffled(1, weights, generator(0, 1), order)
    assert plan.indices.tolist() == [3, 1, 1, 0]
    assert plan.weights.tolist() == [1, 2, 2, 1]
    assert plan.total == 5


def test_an_order_is_drawn_anew_for_every_epoch():
    epochs = iter([[0, 1, 2], [2, 1, 0], [1, 1, 1]])

    class Sampler:
        def __iter__(self):
            return iter(next(epochs))

    train_data = InfoBatch(range(3), num_epochs=3, method="full", order=Sampler())
    plans = [train_data.plan.indices.tolist()]
    for epoch in (1, 2):
        train_data.set_epoch(epoch)
        plans.append(train_data.plan.indices.tolist())
    assert plans == [[0, 1, 2], [2, 1, 0], [1, 1, 1]]


@pytest.mark.parametrize("wrong", [[0, 4], [-1, 0]])
def test_an_order_outside_the_data_is_refused(wrong):
    with pytest.raises(IndexError, match=r"order yields an index outside 0\.\.3"):
        shuffled(0, Weights.ones(4), generator(0, 0), wrong)


def test_an_order_of_floats_is_refused():
    with pytest.raises(TypeError, match="order"):
        shuffled(0, Weights.ones(4), generator(0, 0), [0.5, 1.0])


# -- which epochs are pruned -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_epochs", "delta", "warmup", "expected"),
    [
        (8, 0.875, 0, range(1, 7)),  # δ·C = 7 is whole: epoch 7 is full
        (10, 0.875, 0, range(1, 9)),  # δ·C = 8.75: epoch 8 < 8.75 is still pruned
        (100, 0.07, 0, range(1, 7)),  # 0.07 * 100 is 7.000000000000001 in floats
        (100, 0.29, 0, range(1, 29)),  # 0.29 * 100 is 28.999999999999996 in floats
        (300, 0.875, 20, range(20, 263)),  # the paper's Swin recipe
        (3, 0.875, 0, range(1, 2)),  # δ·C = 2.625: Eq. 10 would prune the last epoch, which is full
        (5, 0.875, 0, range(1, 4)),
        (7, 0.875, 0, range(1, 6)),
        (5, 0.999, 0, range(1, 4)),
        (5, 1.0, 0, range(1, 5)),
        (5, 1, 1, range(1, 5)),
    ],
)
def test_known_ranges_of_epochs(num_epochs, delta, warmup, expected):
    assert pruning_epochs(num_epochs, delta, warmup) == expected


@pytest.mark.parametrize(
    ("num_epochs", "delta", "warmup"), [(1, 1.0, 0), (10, 0.0, 0), (10, 0.1, 0), (10, 0.5, 5), (4, 1.0, 9)]
)
def test_nothing_is_pruned_where_no_epoch_is_left(num_epochs, delta, warmup):
    assert len(pruning_epochs(num_epochs, delta, warmup)) == 0


@settings(deadline=None, derandomize=True)
@given(
    num_epochs=st.integers(1, 400),
    thousandths=st.integers(0, 1000),
    warmup=st.integers(0, 30),
)
def test_pruned_epochs_agree_with_the_reference(num_epochs, thousandths, warmup):
    delta = thousandths / 1000
    pruned = set(pruning_epochs(num_epochs, delta, warmup))
    expected = {t for t in range(num_epochs + 3) if reference.is_pruned(t, num_epochs, delta, warmup)}
    assert pruned == expected
    assert all(t < Fraction(thousandths, 1000) * num_epochs for t in pruned)


# -- one rank's part -------------------------------------------------------------------------------------------------


@given(size=st.integers(0, 200), world=st.integers(1, 9), start=st.integers(0, 210))
def test_every_entry_is_on_exactly_one_rank_and_all_ranks_have_equally_many(size: int, world: int, start: int) -> None:
    start = min(start, size)
    entries = np.random.default_rng(size).permutation(size)
    parts = [Slice(Order(entries), rank, world, start) for rank in range(world)]

    assert len({len(part) for part in parts}) == len({len(part[:]) for part in parts}) == 1
    real = [part[: len(part) - part.padded].tolist() for part in parts]
    assert sorted(itertools.chain(*real)) == sorted(entries[start:].tolist())
    padding = sum(part.padded for part in parts)
    assert padding < world
    assert {part.global_padding for part in parts} == {padding}
    assert all(part.start == start for part in parts)
    # Step by step the ranks together hold the blocks that one process with the world-fold batch would see.
    in_order = np.stack([part[:] for part in parts], axis=1).reshape(-1)[: size - start]
    assert in_order.tolist() == entries[start:].tolist()


@given(size=st.integers(1, 60), world=st.integers(1, 7), data=st.data())
def test_padding_is_the_plan_s_first_sample_also_after_a_resume(size: int, world: int, data: st.DataObject) -> None:
    """Its weight is 0, but batch norm sees it: a resumed epoch must end as the whole one does."""
    start = data.draw(st.integers(0, size - 1))
    order = Order(np.random.default_rng(size).permutation(size))
    for rank in range(world):
        part = Slice(order, rank, world, start)
        if part.padded:
            assert part[:][-1] == order[:1][0]


# -- plans in batches that full data has ------------------------------------------------------------------------------


@given(kept=st.integers(1, 400), left_out=st.integers(0, 400), batch=st.integers(1, 70))
@example(kept=1, left_out=1, batch=2)
def test_a_plan_ends_in_a_batch_that_full_data_has_or_is_not_pruned(kept, left_out, batch):
    total = kept + left_out
    cut = surplus(kept, total, batch)
    if cut is None:
        assert batch < total or kept == 1  # where all data fits into one batch, it only gets smaller, but not to one
        return
    assert 0 <= cut <= kept / 4
    assert (kept - cut) % batch in (0, total % batch) or total <= batch
    near = Epoch(1, range(1, 9), 10, 0, batch=batch).fit(kept, total)
    assert 0 < near <= total
    assert abs(near - kept) <= max(batch / 2, 0) or near == total or total <= batch
    if total > batch:
        assert surplus(near, total, batch) == 0


CELLS = [
    (np.array([1, 1, 1, 1, 1, 0, 0]), np.array([0, 2])),
    (np.array([1, 1, 1, 1, 2, 2, 2]), np.array([0, 2, 1])),
    (np.array([1, 1, 1, 1, 1, 1, 1]), np.array([0, 3])),
]


@pytest.mark.parametrize("batch", [2, 3, 4])
@pytest.mark.parametrize(("group", "prune"), CELLS)
def test_a_plan_that_is_cut_stays_unbiased(group, prune, batch):
    assert is_unbiased(lambda rng: cut_to_batches(fixed_size(group, prune, rng), batch, rng))


@pytest.mark.parametrize("cut", [1, 2])
@pytest.mark.parametrize("dense", [False, True])
def test_leaving_more_out_stays_unbiased_whether_from_one_level_or_from_all(cut, dense):
    group, prune = np.array([1, 1, 1, 2, 2, 2, 0]), np.array([0, 1, 1])

    def draw(rng):
        weights = fixed_size(group, prune, rng)
        return (Weights.dense(weights.of(np.arange(7))) if dense else weights).without(cut, rng)

    assert is_unbiased(draw)


def test_from_one_level_the_sum_of_weights_stays():
    group = np.repeat([1, 0], [60, 40])
    weights = fixed_size(group, np.array([0, 30]), np.random.default_rng(0))
    less = weights.without(5, np.random.default_rng(1))
    assert less.count == weights.count - 5
    assert less.of(np.arange(100)).sum() == pytest.approx(100)
    assert (less.of(np.arange(60, 100)) == 1).all()  # the samples that are always kept still are


def test_weights_that_are_not_rescaled_stay_one_when_cut():
    weights = Weights.only(np.arange(40) < 33)
    less = weights.without(1, np.random.default_rng(0))
    assert set(less.of(less.kept())) == {1.0}
    assert less.count == 32


def test_large_data_is_cut_without_a_list_of_all_samples():
    codes = (np.arange(300_000) % 3).astype(np.uint8)
    weights = Weights.coded(codes, np.array([0.0, 1.0, 2.0]))
    less = weights.without(100, np.random.default_rng(0))
    assert less.count == weights.count - 100
    assert np.count_nonzero(less.codes == 1) == 100_000
    assert less.of(np.arange(300_000)).sum() == pytest.approx(300_000)


def test_an_own_order_is_cut_by_entries():
    order = list(np.random.default_rng(0).integers(0, 20, 64))
    weights = Weights.dense(np.where(np.arange(20) < 10, 2.0, 1.0) * (np.arange(20) % 4 > 0))
    whole = shuffled(1, weights, generator(0, 1), order)
    cut = shuffled(1, weights, generator(0, 1), order, batch=4)
    assert len(cut) == len(whole) - len(whole) % 4 < len(whole)
    assert cut.weights.mean() * len(cut) == pytest.approx(whole.weights.sum(), rel=0.1)
