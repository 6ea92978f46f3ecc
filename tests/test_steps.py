"""Steps that stay: as many as full data has, with smaller batches, on the scale of full data."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from distributed import stepping
from distributed.launch import forked
from distributed.scenarios import notes
from infobatch import DriftError, InfoBatch, paced

SIZE, BATCH, EPOCHS = 75, 8, 6  # 10 steps; full batches of 8 and 7


def make(workers: int = 0, **options: Any) -> tuple[InfoBatch, Any]:
    td = InfoBatch(TensorDataset(torch.arange(float(SIZE))), EPOCHS, **{"delta": 0.9, **options})
    return td, DataLoader(td, batch_sampler=td.batches(BATCH), num_workers=workers)


def loss_of(x: torch.Tensor, epoch: int) -> torch.Tensor:
    return 1 + torch.sin(x * 1.7 + epoch)


def steps(td: InfoBatch, loader: Any) -> Any:
    """(epoch, samples, mean) of every step until training ends."""
    for epoch in range(td.epoch, EPOCHS):
        td.set_epoch(epoch)
        for x, *index in loader:
            yield epoch, x.long().tolist(), float(td.update(loss_of(x, epoch), *index))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("index_key", [None, "index"])
@pytest.mark.parametrize("method", ["infobatch", "infobatch-quantile", "random", "full"])
def test_steps_stay_and_batches_shrink(method: str, index_key: Any, workers: int) -> None:
    td, loader = make(workers, index_key=index_key, method=method)
    for epoch in range(EPOCHS):
        td.set_epoch(epoch)
        assert len(loader) == 10
        sizes, seen = [], []
        weight = np.zeros(SIZE)
        weight[td.plan.indices] = td.plan.weights
        for x, *index in loader:
            loss = loss_of(x, epoch)
            mean = td.update(loss, *index)
            stands_for = len(x) * td.plan.weights.mean()
            assert float(mean) == pytest.approx(float((loss * torch.from_numpy(weight[x.long()])).sum()) / stands_for)
            sizes.append(len(x))
            seen += x.long().tolist()
        assert len(sizes) == 10
        assert max(sizes) - min(sizes) <= 1
        assert seen == td.plan.indices.tolist()
        np.testing.assert_allclose(td.scores[seen], loss_of(torch.tensor(seen).float(), epoch), rtol=1e-6)
    assert (td.stats.saved > 0) == (method != "full")


def test_the_loss_is_on_the_scale_of_full_data() -> None:
    size = 4000
    losses = torch.rand(size, generator=torch.Generator().manual_seed(0)).square()
    td = InfoBatch(TensorDataset(torch.arange(size)), 20)
    loader = DataLoader(td, batch_sampler=td.batches(100))
    means = [float(td.update(losses[x])) for _ in range(15) for (x,) in loader]
    assert len(means) == 15 * 40
    assert np.mean(means) == pytest.approx(float(losses.mean()), rel=0.02)
    assert td.stats.saved > 0.2 * 15 * size


@pytest.mark.parametrize("index_key", [None, "index"])
@pytest.mark.parametrize("workers", [0, 2])
def test_resumed_after_any_step(index_key: Any, workers: int) -> None:
    td, loader = make(workers, index_key=index_key)
    way, states = [], []
    for step in steps(td, loader):
        way.append(step)
        states.append(td.state_dict())
    assert [epoch for epoch, *_ in way] == [epoch for epoch in range(EPOCHS) for _ in range(10)]
    for done in range(1, len(way) + 1, 1 if not workers else 13):
        resumed, loader = make(workers, index_key=index_key)
        resumed.load_state_dict(states[done - 1])
        assert len(loader) == 10 - (done % 10 if done < len(way) else 0)
        assert list(steps(resumed, loader)) == way[done:], done


def test_filtered_and_named_batches_are_resumed_by_entries() -> None:
    td, loader = make(index_key="index")
    seen = []
    for number, (x, index) in enumerate(loader, 1):
        td.update(x[1:], index[1:])
        seen += index.tolist()
        if number == 4:
            break
    resumed, loader = make(index_key="index")
    resumed.load_state_dict(td.state_dict())
    for x, index in loader:
        resumed.update(x, index)
        seen += index.tolist()
    assert Counter(seen) == Counter(range(SIZE))


def test_a_bare_schedule_has_nothing_to_be_paced_for() -> None:
    rates: list[list[float]] = []
    for wrap in (lambda scheduler, td: scheduler, paced):
        td, loader = make()
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
        scheduler = wrap(lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / (10 * EPOCHS)), td)
        rates.append([])
        for epoch in range(EPOCHS):
            td.set_epoch(epoch)
            for (x,) in loader:
                td.update(x)
                optimizer.step()
                scheduler.step()
                rates[-1].append(scheduler.get_last_lr()[0])
    assert rates[0] == pytest.approx(rates[1], abs=1 / (10 * EPOCHS))
    assert rates[0][-1] == pytest.approx(0)


@pytest.mark.parametrize("index_key", [None, "index"])
def test_whole_batches_only(index_key: Any) -> None:
    """With drop_last full data has 9 whole batches of 8, and 3 samples are left out; pruned epochs leave out none."""

    def made() -> tuple[InfoBatch, Any]:
        td, _ = make(index_key=index_key)
        return td, DataLoader(td, batch_sampler=td.batches(BATCH, drop_last=True))

    td, loader = made()
    way, states = [], []
    for step in steps(td, loader):
        way.append(step)
        states.append(td.state_dict())
        assert len(loader) == 9
    sizes = [[len(samples) for e, samples, _ in way if e == epoch] for epoch in range(EPOCHS)]
    assert sizes[0] == sizes[-1] == [8] * 9
    assert [sum(of_epoch) for of_epoch in sizes] == [min(e.kept, 72) for e in td.stats.epochs]
    assert [e.seen for e in td.stats.epochs] == [sum(of_epoch) for of_epoch in sizes]
    assert all(len(of_epoch) == 9 and max(of_epoch) - min(of_epoch) <= 1 for of_epoch in sizes)
    for done in (4, 9, 12, 18, 50):
        td, loader = made()
        td.load_state_dict(states[done - 1])
        assert len(loader) == 9 - done % 9
        assert list(steps(td, loader)) == way[done:], done
    with pytest.raises(ValueError, match="batch_size=80 is more than the 75 samples"):
        len(td.batches(80, drop_last=True))


def test_the_length_is_that_of_the_pass_while_it_runs() -> None:
    """A loop may ask for it at every step, also in a resumed epoch."""
    td, loader = make()
    for number, (x,) in enumerate(loader):
        td.update(x)
        assert len(loader) == 10
        if number == 3:
            break
    resumed, loader = make()
    resumed.load_state_dict(td.state_dict())
    for (x,) in loader:
        resumed.update(x)
        assert len(loader) == 6
    assert len(loader) == 10


def test_weights_are_those_of_update() -> None:
    """For losses that one weighs oneself: on the scale of full data as well."""
    td, loader = make(index_key="index")
    for epoch in range(2):
        td.set_epoch(epoch)
        for x, index in loader:
            loss = loss_of(x, epoch)
            mean = (loss * td.weights_of(index)).mean()
            assert float(td.update(loss, index)) == pytest.approx(float(mean))
    assert len(td.plan) < SIZE


def test_another_sampler_is_refused() -> None:
    """What frameworks would make of it for several processes."""
    td, _ = make()
    with pytest.raises(TypeError, match=r"got DistributedSampler.*use_distributed_sampler=False"):
        type(td.batches(8))(DistributedSampler(td, 2, 0), batch_size=8, drop_last=False)


def test_positions_are_checked_as_ever() -> None:
    td, loader = make()
    batches = iter(loader)
    next(batches)
    with pytest.raises(DriftError, match="delivered 2 batches"):
        td.update(next(batches)[0])


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata's own
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_is_refused_at_the_first_batch(workers: int) -> None:
    """Resumed, it would skip batches of what is left; by index nothing else would notice."""
    td, _ = make(index_key="index")
    loader = StatefulDataLoader(td, batch_sampler=td.batches(BATCH), num_workers=workers)
    with pytest.raises(DriftError, match=r"does not work with torchdata's StatefulDataLoader.*use torch's DataLoader"):
        next(iter(loader))


def test_fewer_samples_than_steps() -> None:
    td = InfoBatch(TensorDataset(torch.arange(6.0)), 4, ratio=0.9, delta=1.0)
    loader = DataLoader(td, batch_sampler=td.batches(1))
    lengths = []

    def train() -> None:
        for _ in range(4):
            lengths.append(len(loader))
            for (x,) in loader:
                td.update(x)

    with pytest.warns(RuntimeWarning, match=r"6 steps cannot stay with \d samples") as warned:
        train()
    assert sum("cannot stay" in str(warning.message) for warning in warned) == 1
    assert all(e.seen == e.kept for e in td.stats.epochs)
    assert lengths == [e.kept for e in td.stats.epochs]


@pytest.mark.parametrize(
    ("how", "compilations"),
    [
        ({}, [2, 3]),  # the first size; then all sizes, in one graph; then weights that are not all 1
        ({"dynamic": True}, [1, 2]),
        ({"mark": True}, [1, 2]),
    ],
    ids=str,
)
def test_compiled_steps_are_not_built_anew_for_every_size(how: dict[str, bool], compilations: list[int]) -> None:
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    td, loader = make(index_key="index")
    counter, marked = CompileCounter(), how.get("mark", False)
    step = torch.compile(lambda x, i: td.update(x + 1, i), fullgraph=True, backend=counter, dynamic=how.get("dynamic"))
    counts, sizes = [], set()
    for epoch in range(EPOCHS):
        td.set_epoch(epoch)
        for x, index in loader:
            weight = td.plan.by_sample.of(index.numpy())
            expected = ((x + 1) * torch.tensor(np.array(weight))).sum() / (len(x) * td.plan.weights.mean())
            for tensor in [x, index] * marked:
                torch._dynamo.mark_dynamic(tensor, 0)
            assert float(step(x, index)) == pytest.approx(float(expected), rel=1e-5)
            sizes.add(len(x))
        counts.append(counter.frame_count)
    assert counts == [*compilations, *compilations[-1:] * (EPOCHS - 2)]
    assert len(sizes) > 3
    torch._dynamo.reset()


@pytest.mark.parametrize("index_key", [None, "index"])
def test_accumulated_gradients_are_on_the_scale_of_full_data(index_key: Any) -> None:
    """A group's gradient is that of its weighted samples over what they stand for; its mean is full data's gradient."""
    size, batch, k, epochs = 4000, 100, 3, 15
    data = torch.rand(size, generator=torch.Generator().manual_seed(0)).square()
    td = InfoBatch(TensorDataset(torch.arange(size)), 20, index_key=index_key)
    loader = DataLoader(td, batch_sampler=td.batches(batch))
    factor = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([factor], lr=0.0)
    gradients: list[float] = []
    for epoch in range(epochs):
        td.set_epoch(epoch)
        weight = np.zeros(size)
        weight[td.plan.indices] = td.plan.weights
        group: list[int] = []
        for number, (x, *index) in enumerate(loader, 1):
            last = len(loader) - len(loader) % k
            (td.update(factor * data[x], *index) / (k if number <= last else len(loader) - last)).backward()
            group += x.tolist()
            if number % k == 0 or number == len(loader):
                gradients.append(float(factor.grad))
                weighted = np.dot(data.numpy()[group], weight[group])
                assert gradients[-1] == pytest.approx(weighted / len(group) / td.plan.weights.mean(), rel=0.01)
                optimizer.step()
                optimizer.zero_grad()
                group = []
    assert len(gradients) == epochs * 14  # 40 batches, the last group of one
    assert np.mean(gradients) == pytest.approx(float(data.mean()), rel=0.02)
    assert td.stats.saved > 0.2 * epochs * size


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, "8"])
def test_a_batch_size_is_a_whole_number(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="batch_size must be"):
        InfoBatch(range(5), 2).batches(wrong)


@pytest.mark.parametrize("index_key", [None, "index"])
def test_on_ranks_steps_are_equal_and_the_mean_is_that_of_one_process(index_key: Any, tmp_path: Path) -> None:
    found = {}
    for world in (1, 2, 3):
        folder = tmp_path / str(world)
        folder.mkdir()
        assert forked(world, stepping.train, folder, index_key) == [0] * world
        ranks = notes(folder, world)
        assert len({len(rank["means"]) for rank in ranks}) == 1
        assert all(rank["plans"] == ranks[0]["plans"] for rank in ranks)
        found[world] = ranks
    for world in (2, 3):
        assert found[world][0]["plans"] == found[1][0]["plans"]
        for epoch, plan in enumerate(found[world][0]["plans"]):
            seen = [i for rank in found[world] for e, *batch in rank["seen"] if e == epoch for i in batch]
            assert Counter(seen) == Counter(plan) + Counter(plan[:1] * (-len(plan) % world))
            sizes = [len(batch) for rank in found[world] for e, *batch in rank["seen"] if e == epoch]
            assert max(sizes) - min(sizes) <= 1
        means = np.mean([rank["means"] for rank in found[world]], axis=0)
        assert np.mean(means) == pytest.approx(np.mean(found[1][0]["means"]), rel=0.03)


def test_resumed_on_another_number_of_ranks(tmp_path: Path) -> None:
    for before, after in ((2, 1), (1, 2), (2, 3)):
        folder = tmp_path / f"{before}-{after}"
        folder.mkdir()
        assert forked(before, stepping.stop, folder) == [0] * before
        first = notes(folder, before)
        assert forked(after, stepping.go_on, folder) == [0] * after
        second = notes(folder, after)
        plan = first[0]["plan"]
        seen = [i for rank in first + second for i in rank["seen"]]
        assert set(seen) == set(plan)
        assert all(count == 1 for sample, count in Counter(seen).items() if sample != plan[0])
        assert len({rank["steps"] for rank in second}) == 1
