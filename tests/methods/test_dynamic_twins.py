"""The methods that remember, each against a slow twin: one sample at a time, as its paper writes it."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from infobatch import DriftError, InfoBatch, methods
from infobatch.core.plan import generator
from infobatch.methods.seta import group_bounds
from infobatch.methods.weighted_bernoulli import of_least_variance

SIZE, EPOCHS = 24, 14


def loss_of(sample: int, epoch: int) -> float:
    """Different for every sample and epoch, so that no two ever tie."""
    return float(np.float32(abs(math.sin(sample * 12.9898 + epoch * 78.233)) * 2 + sample * 1e-4))


def history(name, **options):
    """(epoch, the samples trained on, their weights) of a whole training."""
    train_data = InfoBatch(TensorDataset(torch.arange(SIZE)), EPOCHS, method=name, **options)
    loader = DataLoader(train_data, batch_size=1, sampler=train_data.sampler)  # no batch is short, so none is cut
    found = []
    for epoch in range(EPOCHS):
        train_data.set_epoch(epoch)
        plan = train_data.plan
        found.append((epoch, set(plan.indices.tolist()), dict(zip(plan.indices.tolist(), plan.weights, strict=True))))
        for (samples,) in loader:
            train_data.update(torch.tensor([loss_of(i, epoch) for i in samples.tolist()]))
    return found


def top(value, count):
    return set(sorted(range(SIZE), key=lambda i: value[i], reverse=True)[:count])


@pytest.mark.parametrize("period", [1, 3])
def test_ucb(period):
    alpha, c, ratio = 0.8, 1.0, 0.4
    count = SIZE - math.floor(ratio * SIZE)
    mean, variance, kept = {}, {}, None
    for epoch, trained, _ in history("ucb", ratio=ratio, c=c, alpha=alpha, period=period):
        if epoch:
            if (epoch - 1) % period == 0:
                kept = top({i: mean[i] + c * variance[i] for i in range(SIZE)}, count)
            assert trained == kept, epoch
        for i in trained:
            loss = loss_of(i, epoch)
            if i not in mean:
                mean[i], variance[i] = loss, 0.0
            else:
                variance[i] = (1 - alpha) * variance[i] + alpha * (loss - mean[i]) ** 2
                mean[i] = (1 - alpha) * mean[i] + alpha * loss


@pytest.mark.parametrize("rescale", [False, True])
def test_epsilon_greedy(rescale):
    alpha, epsilon, period, ratio = 0.8, 0.25, 4, 0.5
    count = SIZE - math.floor(ratio * SIZE)
    drawn = math.floor(epsilon * count)
    mean, kept, explored = {}, None, set()
    options = {"ratio": ratio, "epsilon": epsilon, "alpha": alpha, "period": period, "rescale": rescale}
    for epoch, trained, weight in history("epsilon-greedy", **options):
        if epoch:
            if (epoch - 1) % period == 0:
                best = top(mean, count - drawn)
                assert best < trained
                assert len(trained) == count
                kept = trained
                explored |= kept - best
                share = (SIZE - count + drawn) / drawn if rescale else 1
                assert {weight[i] for i in kept - best} == {share}
                assert {weight[i] for i in best} == {1.0}
            assert trained == kept, epoch
        for i in trained:
            mean[i] = (1 - alpha) * mean[i] + alpha * loss_of(i, epoch) if i in mean else loss_of(i, epoch)
    assert len(explored) > drawn


def test_epsilon_greedy_is_unbiased_when_rescaled():
    method = methods.create("epsilon-greedy", epsilon=0.5, rescale=True)
    rank = np.arange(6.0)
    total = sum(method.keep(rank, 4, generator(seed, 1)).of(np.arange(6)) for seed in range(4000)) / 4000
    assert total == pytest.approx(1, abs=0.1)


def test_dyn_unc():
    window, ratio = 3, 0.25
    count = SIZE - math.floor(ratio * SIZE)
    probability = {i: [] for i in range(SIZE)}
    for epoch, trained, _ in history("dyn-unc", ratio=ratio, window=window):
        uncertainty = {}
        for i, values in probability.items():
            ends = range(window, len(values) + 1)
            windows = [statistics.stdev(values[end - window : end]) for end in ends]
            if not windows and len(values) >= 2:
                windows = [statistics.stdev(values)]
            uncertainty[i] = statistics.mean(windows) if windows else math.inf
        assert len(trained) == (count if epoch else SIZE)
        if epoch:
            lost = set(range(SIZE)) - trained
            assert max(uncertainty[i] for i in lost) <= min(uncertainty[i] for i in trained), epoch
        for i in trained:
            probability[i].append(math.exp(-loss_of(i, epoch)))


@pytest.mark.parametrize("ratio", [0.5, 0.3, 0.9])
def test_rs2_takes_no_sample_again_before_all_others_came(ratio):
    uses = dict.fromkeys(range(SIZE), 0)
    for epoch, trained, weight in history("rs2", ratio=ratio, rescale=True):
        count = SIZE - math.floor(ratio * SIZE) if epoch else SIZE
        assert len(trained) == count
        assert set(weight.values()) == {SIZE / count}
        least = min(uses.values())
        rest = {i for i in uses if uses[i] == least}
        assert rest <= trained or trained <= rest
        for i in trained:
            uses[i] += 1
        assert max(uses.values()) - min(uses.values()) <= 1


def test_kakurenbo():
    fraction, confidence = 0.5, 0.6
    steps = ((0.0, 1.0), (0.3, 0.8), (0.6, 0.6), (0.8, 0.4))
    last = {}
    hidden_counts = []
    for epoch, trained, weight in history("kakurenbo", fraction=fraction, confidence=confidence):
        share = fraction * [factor for start, factor in steps if epoch / EPOCHS >= start][-1]
        hidden = set()
        if epoch:
            candidates = sorted(range(SIZE), key=lambda i: last[i])[: math.floor(round(share * SIZE, 9))]
            hidden = {i for i in candidates if math.exp(-last[i]) >= confidence}
        assert trained == set(range(SIZE)) - hidden, epoch
        assert set(weight.values()) == {SIZE / len(trained)}
        hidden_counts.append(len(hidden))
        last |= {i: loss_of(i, epoch) for i in trained}
    assert max(hidden_counts) > 0


def test_kakurenbo_sees_hidden_samples_again_when_they_are_noted():
    train_data = InfoBatch(TensorDataset(torch.arange(SIZE)), EPOCHS, method="kakurenbo", fraction=0.5)
    loader = DataLoader(train_data, batch_size=1, sampler=train_data.sampler)
    for (samples,) in loader:
        train_data.update(samples / 100)
    train_data.set_epoch(1)
    assert train_data.left_out.tolist() == list(range(12))
    for (samples,) in loader:
        train_data.update(samples / 100)
    train_data.note(torch.full((12,), 3.0), torch.from_numpy(train_data.left_out))
    train_data.set_epoch(2)
    assert train_data.left_out.tolist() == list(range(12, 24))


def hidden_by_kakurenbo(unsmoothed_score):
    """How many samples each epoch hides, where a logit per sample and class is learned with label smoothing."""
    logits = torch.zeros(SIZE, 10)
    labels = torch.arange(SIZE) % 10
    train_data = InfoBatch(TensorDataset(torch.arange(SIZE)), EPOCHS, method="kakurenbo")
    loader = DataLoader(train_data, batch_size=4, sampler=train_data.sampler)
    hidden = []
    for epoch in range(EPOCHS):
        train_data.set_epoch(epoch)
        hidden.append(len(train_data.left_out))
        for (samples,) in loader:
            own, label = logits[samples].requires_grad_(), labels[samples]
            loss = cross_entropy(own, label, reduction="none", label_smoothing=0.1)
            score = cross_entropy(own, label, reduction="none") if unsmoothed_score else None
            train_data.update(loss, score=score).backward()
            logits[samples] -= 60 * own.grad
    return hidden


def test_kakurenbo_says_once_that_label_smoothing_hides_nothing():
    """The lowest smoothed cross-entropy of 10 classes is 0.50; a probability of 0.7 is 0.36."""
    assert max(hidden_by_kakurenbo(unsmoothed_score=True)) >= 7
    with pytest.warns(RuntimeWarning) as said:
        assert max(hidden_by_kakurenbo(unsmoothed_score=False)) == 0
    assert [str(w.message).partition(":")[0] for w in said] == ["kakurenbo hides nothing in epoch 3"]
    assert "not one of 24 samples has a score of 0.357 or less" in str(said[0].message)
    assert "score=cross_entropy(logits, labels, reduction='none')" in str(said[0].message)


@pytest.mark.parametrize(("momentum", "decay", "same"), [(0, 0, True), (0, 0.1, False), (0.9, 0, False)])
def test_a_weight_is_a_learning_rate_for_plain_sgd_alone(momentum, decay, same):
    """What the card says of KAKURENBO's weight N/kept, which changes from epoch to epoch."""
    found = []
    for by_rate in (False, True):
        x = torch.tensor([3.0], requires_grad=True)
        optimizer = torch.optim.SGD([x], lr=0.1, momentum=momentum, weight_decay=decay)
        for factor in (1.0, 1.4, 1.2, 1.0):
            optimizer.param_groups[0]["lr"] = 0.1 * (factor if by_rate else 1)
            optimizer.zero_grad()
            ((x - 1) ** 2 * (1 if by_rate else factor)).sum().backward()
            optimizer.step()
        found.append(x.item())
    assert (found[0] == pytest.approx(found[1], rel=1e-6)) == same


def test_only_methods_that_use_it_take_notes():
    train_data = InfoBatch(TensorDataset(torch.arange(SIZE)), EPOCHS)
    with pytest.raises(RuntimeError, match="'infobatch' does not use scores of samples that were left out"):
        train_data.note(torch.zeros(1), torch.zeros(1, dtype=torch.int64))


@settings(deadline=None)
@given(st.lists(st.floats(0, 9, width=32), min_size=1, max_size=40), st.integers(2, 6))
def test_groups_are_those_of_lloyds_algorithm(values, groups):
    values = np.array(values, np.float32)
    ordered = sorted(values.tolist())
    centres = sorted({ordered[int((g + 0.5) / groups * len(ordered))] for g in range(groups)})
    for _ in range(300):
        nearest = [min(range(len(centres)), key=lambda c: (abs(v - centres[c]), -c)) for v in ordered]
        members = [[v for v, c in zip(ordered, nearest, strict=True) if c == k] for k in range(len(centres))]
        moved = [sum(m) / len(m) for m in members if m]
        if np.allclose(moved, centres[: len(moved)], rtol=1e-12) and len(moved) == len(centres):
            break
        centres = moved
    middles = [(a + b) / 2 for a, b in itertools.pairwise(centres)]
    assert group_bounds(values, groups) == pytest.approx(middles, rel=1e-6, abs=1e-9)


def test_seta():
    random, groups, window, until = 0.25, 4, 0.5, 0.8
    last = {}
    for epoch, trained, weight in history("seta", random=random, groups=groups, window=window, until=until):
        assert set(weight.values()) == {1.0}
        if epoch == 0:
            assert len(trained) == SIZE
        elif epoch / EPOCHS >= until:
            assert len(trained) == SIZE - math.floor(random * SIZE)
        else:
            drawn = set(range(SIZE))
            lost = generator(0, epoch).choice(np.arange(SIZE), math.floor(random * SIZE), replace=False, shuffle=False)
            drawn -= set(lost.tolist())
            bounds = group_bounds(np.array([last[i] for i in drawn], np.float32), groups)
            first = epoch % (groups - round(groups * window) + 1)
            inside = {i for i in drawn if first <= sum(last[i] >= b for b in bounds) < first + round(groups * window)}
            assert trained == inside, epoch
        last |= {i: loss_of(i, epoch) for i in trained}


@pytest.mark.parametrize(("ratio", "top"), [(0.7, 0.6), (0.5, None), (0.25, 0.75), (0.5, 1.0)])
def test_orderdp(ratio, top):
    last, count = {}, SIZE - math.floor(ratio * SIZE)
    drawn = round(count / (math.sqrt(1 - ratio) if top is None else top))
    for epoch, trained, weight in history("orderdp", ratio=ratio, top=top):
        assert set(weight.values()) == {1.0}
        if epoch:
            subset = generator(0, epoch).choice(SIZE, drawn, replace=False, shuffle=False).tolist()
            assert trained == set(sorted(subset, key=lambda i: last[i])[drawn - count :]), epoch
        last |= {i: loss_of(i, epoch) for i in trained}


def test_orderdp_cannot_draw_more_than_there_is():
    with pytest.raises(ValueError, match=r"top must be at least 1 - ratio, 0.7, .*got 0.6: raise top, or ratio"):
        methods.create("orderdp", ratio=0.3, top=0.6)


@pytest.mark.parametrize("readded", [1.0, 0.5])
def test_repb(readded):
    """Batch by batch: which samples may be left out, how many are, and what the others weigh."""
    ratio, epochs = 0.5, 8
    train_data = InfoBatch(TensorDataset(torch.arange(SIZE)), epochs, ratio, 1.0, method="repb", readded=readded)
    below, unused, times = set(), set(), dict.fromkeys(range(SIZE), 0)
    for epoch in range(epochs):
        train_data.set_epoch(epoch)
        weight = dict(zip(train_data.plan.indices.tolist(), train_data.plan.weights, strict=True))
        left_out = set(range(SIZE)) - set(weight)
        assert left_out <= below | unused
        assert len(left_out & below) == math.floor(ratio * len(below))
        assert len(left_out & unused) == math.floor((1 - readded) * len(unused))
        below, unused = set(), left_out
        for i in weight:
            times[i] += 1
            assert weight[i] == pytest.approx((epoch + 1) / times[i])
        for index in torch.from_numpy(train_data.plan.indices.astype(np.int64)).split(5):
            losses = {i: loss_of(i, epoch) for i in index.tolist()}
            returned = train_data.update(torch.tensor(list(losses.values())), index)
            assert returned.item() == pytest.approx(statistics.mean(weight[i] * losses[i] for i in losses), rel=1e-6)
            below |= {i for i in losses if losses[i] < statistics.mean(losses.values())}
    assert train_data.stats.saving > 0.1


def test_repb_compares_with_the_losses_that_are_finite():
    train_data = InfoBatch(TensorDataset(torch.arange(4.0)), 4, method="repb")
    train_data.update(torch.tensor([1.0, 4.0, np.nan, np.inf]), torch.arange(4))
    assert train_data.scores.tolist() == pytest.approx([-1.5, 1.5, np.nan, np.nan], nan_ok=True)


@pytest.mark.parametrize("size", ["cross-entropy", "norm"])
@pytest.mark.parametrize("ratio", [0.5, 0.2])
def test_weighted_bernoulli(ratio, size):
    """π = (1 - s)·min(1, c·g) + s·(1 - ratio), c found by halving; g an average of past norms; weight 1/π."""
    alpha, smoothing = 0.3, 0.1
    norm = {}
    options = {"ratio": ratio, "alpha": alpha, "smoothing": smoothing, "size": size}
    for epoch, trained, weight in history("weighted-bernoulli", **options):
        if epoch:
            low, high = 0.0, 1e6
            for _ in range(200):
                c = (low + high) / 2
                enough = sum(min(1, c * g) for g in norm.values()) >= (1 - ratio) * SIZE
                low, high = (low, c) if enough else (c, high)
            keep = {i: (1 - smoothing) * min(1, high * norm[i]) + smoothing * (1 - ratio) for i in norm}
            assert abs(len(trained) - (1 - ratio) * SIZE) < 1
            assert {i: weight[i] for i in trained} == pytest.approx({i: 1 / keep[i] for i in trained}, rel=1e-5)
        for i in trained:
            new = 1 - math.exp(-loss_of(i, epoch)) if size == "cross-entropy" else loss_of(i, epoch)
            norm[i] = (1 - alpha) * norm[i] + alpha * new if i in norm else new


@settings(deadline=None)
@given(st.lists(st.floats(0, 9, width=32), min_size=1, max_size=12), st.floats(0.05, 0.95), st.randoms())
def test_probabilities_of_least_variance_are_optimal(norms, share, random):
    """No other probabilities with the same sum have a lower Σ norm²/π."""
    norm, count = np.array(norms), share * len(norms)
    keep = of_least_variance(norm, count)
    assert keep.max() <= 1 + 1e-12
    assert keep.sum() == pytest.approx(count)

    def variance(keep):
        return float(np.sum(np.square(norm[norm > 0]) / keep[norm > 0]))

    for _ in range(20):
        i, j = random.randrange(len(norms)), random.randrange(len(norms))
        step = random.random() * min(keep[i], 1 - keep[j]) * 0.5
        other = keep.copy()
        other[i] -= step
        other[j] += step
        if (other[norm > 0] > 0).all():
            assert variance(other) >= variance(keep) * (1 - 1e-9)


def test_weighted_bernoulli_needs_some_smoothing():
    with pytest.raises(ValueError, match="smoothing must be above 0: without it a sample of norm 0 would never be"):
        methods.create("weighted-bernoulli", smoothing=0)


@pytest.mark.parametrize("window", [3, 1])
def test_ies(window):
    """Losses level out, each at its own pace, and some jump later on: a sample stops and comes back."""
    threshold, epochs = 0.01, 24

    def loss_at(sample, epoch):
        jumps = 0.3 if sample % 3 == 0 and epoch >= 14 else 0.0
        wobbles = 0.2 * (epoch % 2) if sample == SIZE - 1 else 0.0  # not all stop at once
        return float(np.float32(0.1 + math.exp(-epoch * (sample + 1) / 12) + jumps + wobbles))

    train_data = InfoBatch(TensorDataset(torch.arange(SIZE)), epochs, method="ies", threshold=threshold, window=window)
    loader = DataLoader(train_data, batch_size=1, sampler=train_data.sampler)
    losses, bends = {i: [] for i in range(SIZE)}, {i: [] for i in range(SIZE)}
    stopped, ever, back = set(), set(), set()
    for epoch in range(epochs):
        train_data.set_epoch(epoch)
        assert set(train_data.left_out.tolist()) == stopped, epoch
        for (samples,) in loader:
            train_data.update(torch.tensor([loss_at(i, epoch) for i in samples.tolist()]))
        if stopped:
            left_out = torch.from_numpy(train_data.left_out)
            train_data.note(torch.tensor([loss_at(i, epoch) for i in left_out.tolist()]), left_out)
        for i in range(SIZE):
            losses[i].append(loss_at(i, epoch))
            if epoch >= 2:
                bends[i].append(abs(losses[i][-1] - 2 * losses[i][-2] + losses[i][-3]))
        before = stopped
        stopped = {i for i in range(SIZE) if len(bends[i]) > window and statistics.mean(bends[i][-window:]) < threshold}
        ever |= stopped
        back |= before - stopped
    assert len(ever) > SIZE / 2
    assert {i for i in ever if i % 3 == 0} == back != set()


def test_ies_keeps_one_sample_and_does_not_learn_from_what_was_not_looked_at():
    method = methods.create("ies")
    memory = {"losses": np.full((6, 3), np.nan, np.float32)}
    for _ in range(6):
        method.observe(np.array([1, 2, np.nan], np.float32), np.array([0, 1]), memory)
    about = methods.Epoch(6, range(1, 9), 9, 0, memory={"losses": memory["losses"][:, :2]})
    assert method.select(np.ones(2, np.float32), about, generator(0, 6)).count == 1
    assert np.isnan(memory["losses"][:, 2]).all()
    before = memory["losses"].copy()
    method.observe(np.array([1, 5, np.nan], np.float32), np.array([], np.int64), memory)
    assert memory["losses"][:, 0].tolist() == before[:, 0].tolist()
    assert memory["losses"][:, 1].tolist() == [5, *before[:-1, 1].tolist()]


@pytest.mark.parametrize("interrupt", [0, 2, 3, 5])
def test_selective_backprop_chooses_in_the_batches_of_composers_rule(interrupt):
    """Chosen where start ≤ progress < end and (interrupt is 0 or (batch + 1) % interrupt is not 0)."""
    train_data = InfoBatch(
        TensorDataset(torch.arange(20.0)), 10, method="selective-backprop", keep=0.5, interrupt=interrupt
    )
    loader = DataLoader(train_data, batch_size=2, sampler=train_data.sampler)
    trained, expected = [], []
    for epoch in range(10):
        train_data.set_epoch(epoch)
        for batch, (x,) in enumerate(loader):
            chosen = train_data.choose(x) if train_data.chooses else torch.arange(len(x))
            train_data.update(x[chosen])
            trained.append(len(chosen))
            plain = not 0.5 <= epoch / 10 < 0.9 or (interrupt and (batch + 1) % interrupt == 0)
            expected.append(2 if plain else 1)
    assert trained == expected
    assert sum(e.seen for e in train_data.stats.epochs) == sum(expected)
    announced = methods.create("selective-backprop", interrupt=interrupt).expected_saving(range(1, 10), 10)
    assert train_data.stats.saving == pytest.approx(announced, abs=0.02)


def test_selective_backprop_keeps_all_of_a_batch_without_looking_if_told_so():
    assert not methods.create("selective-backprop", keep=1.0).chooses(0.5, 0)
    with pytest.raises(ValueError, match=r"interrupt must be a whole number, 2 for every second batch.*; got 1"):
        methods.create("selective-backprop", interrupt=1)


def test_selective_backprop_draws_in_proportion_to_the_power_of_the_rank():
    """The first draw of a batch without replacement: p ∝ ((rank + ½)/N)^(1/keep - 1), ranks from 0."""
    method = methods.create("selective-backprop", keep=0.25)
    loss = torch.tensor([0.3, 0.1, 0.9, 0.5])
    power = torch.tensor([1.5, 0.5, 3.5, 2.5]).double() ** 3
    generators = (torch.Generator().manual_seed(seed) for seed in range(6000))
    first = torch.cat([method.choose(loss, chance) for chance in generators])
    assert first.bincount(minlength=4).double() / 6000 == pytest.approx((power / power.sum()).numpy(), abs=0.015)


@pytest.mark.parametrize("shape", [(3, 4), (12, 9)], ids=["more than span", "fewer than span"])
def test_divbs(shape):
    """Gram-Schmidt on the gradients themselves, as the authors write it; the same dice decide."""
    size, few = 20, 14
    rng = torch.Generator().manual_seed(0)
    errors, features = (torch.randn(size, width, generator=rng) for width in shape)
    gradients = torch.einsum("nc,nd->ncd", errors, features).flatten(1).double()
    method = methods.create("divbs", keep=few / size)
    for seed in range(20):
        chance = torch.Generator().manual_seed(seed)
        residual, directions, picks = gradients.mean(0), [], []
        at_first = (gradients @ residual).abs().max()
        for _ in range(few):
            along = (gradients @ residual).abs()
            along[picks] = 0
            if along.max() <= 1e-9 * at_first:  # nothing is left: the rest by chance
                along = torch.ones(size).double().index_fill(0, torch.tensor(picks), 0)
            pick = int(torch.multinomial(along, 1, generator=chance))
            new = gradients[pick] - sum(d * (d @ gradients[pick]) for d in directions)
            if new.square().sum() > 1e-9 * gradients[pick].square().sum():
                directions.append(new / new.norm())
                residual = residual - directions[-1] * (directions[-1] @ residual)
            picks.append(pick)
        for factors in ((errors, features), (gradients,)):
            found = method.choose(torch.zeros(size), torch.Generator().manual_seed(seed), factors)
            assert found.tolist() == picks


def test_divbs_says_what_it_chooses_by():
    train_data = InfoBatch(TensorDataset(torch.arange(8.0)), 4, method="divbs", keep=0.5)
    loader = DataLoader(train_data, batch_size=4, sampler=train_data.sampler)
    for (x,) in loader:
        assert not train_data.chooses
        train_data.update(x)
    train_data.set_epoch(1)
    x, *_ = next(iter(loader))
    assert train_data.chooses
    with pytest.raises(
        TypeError, match=r"'divbs' chooses by each sample's gradient, got NoneType: .*\(errors, features"
    ):
        train_data.choose(x)
    with pytest.raises(ValueError, match=r"a row for each of the batch's 4 samples, got shapes \[\(3, 2\)\]"):
        train_data.choose(x, gradients=torch.zeros(3, 2))
    chosen = train_data.choose(x, gradients=torch.randn(4, 2))
    assert len(set(chosen.tolist())) == 2
    train_data.update(x[chosen])
    assert train_data.stats.epochs[1].seen == 2


def test_a_chosen_part_has_its_own_mean_and_gradient():
    train_data = InfoBatch(
        TensorDataset(torch.arange(8.0)), 4, method="selective-backprop", keep=0.5, start=0.0, end=1.0, interrupt=0
    )
    loader = DataLoader(train_data, batch_size=8, sampler=train_data.sampler)
    for (x,) in loader:
        train_data.update(x[train_data.choose(x)])
    train_data.set_epoch(1)
    [(x,)] = list(loader)
    loss = x.clone().requires_grad_()
    chosen = train_data.choose(loss)
    part = loss[chosen] * 3
    mean = train_data.update(part)
    mean.backward()
    assert mean.item() == pytest.approx(part.mean().item())
    expected = torch.zeros(8).index_fill(0, chosen, 3 / len(chosen))
    assert torch.allclose(loss.grad, expected)
    scores = torch.from_numpy(train_data.scores.copy())[x.long()]
    assert torch.equal(scores, x.index_copy(0, chosen, x[chosen] * 3))
    assert train_data.stats.epochs[1].kept == train_data.stats.epochs[1].seen == 4
    assert train_data.stats.saving == 4 / 32


def test_choosing_must_not_be_forgotten_or_mixed_up():
    train_data = InfoBatch(TensorDataset(torch.arange(8.0)), 4, method="selective-backprop", start=0.0)
    loader = DataLoader(train_data, batch_size=4, sampler=train_data.sampler)
    train_data.set_epoch(0)
    for (x,) in loader:
        train_data.update(x)  # the first epoch is full: there is nothing to choose
    train_data.set_epoch(1)
    x, *_ = next(iter(loader))
    with pytest.raises(RuntimeError, match=r"was called without choose\(\)"):
        train_data.update(x)
    chosen = train_data.choose(x)
    assert len(chosen) == 2
    with pytest.raises(ValueError, match="got 4, but choose\\(\\) returned 2 positions"):
        train_data.update(x)


def test_a_choice_is_for_its_own_batch():
    """Chosen from one batch, and updated with another: named, the samples tell; by position, the loader does."""
    train_data = InfoBatch(TensorDataset(torch.arange(8.0)), 4, method="selective-backprop", start=0.0)
    train_data.set_epoch(0)
    for samples in torch.arange(8).split(4):
        train_data.update(samples.float(), samples)
    train_data.set_epoch(1)
    first, second = torch.from_numpy(train_data.plan.indices.astype(np.int64)).split(4)
    chosen = train_data.choose(first.float(), first)
    with pytest.raises(ValueError, match=r"index must be given to choose\(\) and to update\(\), or to neither"):
        train_data.update(first[chosen].float())
    with pytest.raises(DriftError, match=r"index names other samples than those that choose\(\) returned"):
        train_data.update(second[chosen].float(), second[chosen])
    assert train_data.scores[first].tolist() == first.tolist()


def test_notes_are_for_samples_that_were_left_out():
    train_data = InfoBatch(TensorDataset(torch.arange(SIZE)), EPOCHS, method="kakurenbo", fraction=0.5)
    with pytest.raises(ValueError, match=r"index: sample 3 is in this epoch's plan, or in another rank's"):
        train_data.note(torch.zeros(1), torch.tensor([3]))


def test_for_other_methods_the_whole_batch_is_chosen():
    train_data = InfoBatch(TensorDataset(torch.arange(8.0)), 4)
    assert train_data.choose(torch.rand(5)).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("workers", [0, 1])
def test_bls_takes_the_mean_of_a_batch(named, workers):
    """Against its equations, with means alone; 17 samples in batches of 4, so that the last one is short."""
    alpha, size = 0.6, 17
    train_data = InfoBatch(TensorDataset(torch.arange(size)), 6, method="bls", alpha=alpha)
    loader = DataLoader(train_data, batch_size=4, sampler=train_data.sampler, num_workers=workers)
    score = {}
    for epoch in range(6):
        train_data.set_epoch(epoch)
        weight = dict(zip(train_data.plan.indices.tolist(), train_data.plan.weights, strict=True))
        if epoch in range(1, 6) and len(weight) < size:
            mean = statistics.mean(score.values())
            assert {i for i in weight if weight[i] != 1} <= {i for i in score if score[i] < mean}
            assert set(range(size)) - set(weight) <= {i for i in score if score[i] < mean}
        for (samples,) in loader:
            parameter = torch.tensor([loss_of(i, epoch) for i in samples.tolist()]).mean().requires_grad_()
            returned = train_data.update(parameter, samples if named else None)
            factor = statistics.mean(weight[i] for i in samples.tolist())
            assert returned.item() == pytest.approx(factor * parameter.item(), rel=1e-6)
            returned.backward()
            assert parameter.grad.item() == pytest.approx(factor, rel=1e-6)
            for i in samples.tolist():
                score[i] = alpha * score.get(i, 0) + (1 - alpha) * parameter.item()
    assert train_data.stats.saving > 0.05


def test_bls_knows_nothing_of_a_sample_without_a_finite_loss():
    """Such a sample has no average, and is kept; one that starts late starts at 0 too."""
    method = methods.create("bls", alpha=0.9)
    memory = {"mean": np.full(3, np.nan, np.float32)}
    method.observe(np.array([2, np.nan, 1], np.float32), np.arange(3), memory)
    method.observe(np.array([3, 4, 1], np.float32), np.array([0]), memory)
    assert memory["mean"].tolist() == pytest.approx([0.9 * 0.2 + 0.3, np.nan, 0.1], nan_ok=True)
    method.observe(np.array([3, 4, 1], np.float32), np.array([1]), memory)
    assert memory["mean"][1] == pytest.approx(0.4)


def test_bls_cannot_guess_the_size_of_a_batch():
    train_data = InfoBatch(TensorDataset(torch.arange(8.0)), 4, method="bls")
    next(iter(train_data.sampler))
    with pytest.raises(DriftError, match="loss is one number for a batch whose size is not known"):
        train_data.update(torch.tensor(1.0))


def test_bls_gives_single_losses_their_own_weights():
    train_data = InfoBatch(TensorDataset(torch.arange(8.0)), 4, method="bls")
    loader = DataLoader(train_data, batch_size=4, sampler=train_data.sampler)
    for (x,) in loader:
        mean = train_data.update(x)
        assert mean.item() == x.mean().item()
        assert set(train_data.scores[x.long().numpy()].tolist()) == {mean.item()}
    train_data.set_epoch(1)
    (x,) = next(iter(loader))
    loss = x.clone().requires_grad_()
    train_data.update(loss).backward()
    plan = dict(zip(train_data.plan.indices.tolist(), train_data.plan.weights, strict=True))
    assert (loss.grad * len(x)).tolist() == pytest.approx([plan[i] for i in x.long().tolist()])


def test_other_methods_still_refuse_a_scalar():
    train_data = InfoBatch(TensorDataset(torch.arange(8.0)), 4)
    with pytest.raises(ValueError, match='reduction="none"'):
        train_data.update(torch.tensor(1.0))
