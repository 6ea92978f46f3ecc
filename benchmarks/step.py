"""The training step with and without the library."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import BatchSampler, DataLoader, TensorDataset

from infobatch import InfoBatch
from infobatch.lab import fashion

from .plan import scored
from .timing import Comparison, compare

STEPS = 200


def update_only(batch: int, rounds: int) -> Comparison:
    """``update`` against ``loss.mean()`` and one gather, step by step in turn, in a pruned epoch."""
    train_data = scored(batch * STEPS * 2, "infobatch")
    loss = torch.rand(batch, requires_grad=True)
    index, table = torch.randint(0, 1000, (batch,)), torch.rand(1000)
    ours, theirs = [], []
    for epoch in range(1, rounds + 1):
        train_data.set_epoch(epoch)
        for _ in itertools.islice(BatchSampler(train_data.sampler, batch, True), STEPS):
            start = time.perf_counter()
            train_data.update(loss)
            middle = time.perf_counter()
            loss.mean()
            table.index_select(0, index)
            ours.append(middle - start)
            theirs.append(time.perf_counter() - middle)
    seconds = {"ours": statistics.median(ours), "loss.mean() + one gather": statistics.median(theirs)}
    return Comparison(f"update, batch {batch}", seconds, 3.0)


def small_cnn() -> nn.Module:
    """A network whose step takes a few milliseconds."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)
    )


def whole_step(rounds: int) -> Comparison:
    """A training epoch with the library against the same samples without it."""
    size, batch = 4096, 128
    images, labels = torch.randn(size, 3, 32, 32), torch.randint(0, 10, (size,))
    model = small_cnn()
    model(images[:2])
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    train_data = InfoBatch(TensorDataset(images, labels), 1000, method="full")

    def epoch(loader: DataLoader[object], mean: Callable[[torch.Tensor], torch.Tensor]) -> None:
        for x, y in loader:  # type: ignore[misc]
            optimizer.zero_grad()
            mean(cross_entropy(model(x), y, reduction="none")).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    ours = DataLoader(train_data, batch_size=batch, sampler=train_data.sampler)
    theirs = DataLoader(train_data.dataset, batch_size=batch, shuffle=True)
    return compare(
        "end-to-end epoch of a small CNN, same samples",
        {"with": lambda: epoch(ours, train_data.update), "without": lambda: epoch(theirs, torch.Tensor.mean)},
        rounds,
        1.01,
    )


def compiled_step(rounds: int) -> Comparison:
    """Forward, loss and ``update`` with an index in one compiled graph, then backward; a step of each in turn."""
    size, batch = 4096, 128
    images, labels = torch.randn(size, 3, 32, 32), torch.randint(0, 10, (size,))
    model = small_cnn()
    model(images[:2])
    train_data = InfoBatch(TensorDataset(images, labels), 1000, method="full", index_key="index")

    @torch.compile(fullgraph=True)
    def ours(x: torch.Tensor, y: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return train_data.update(cross_entropy(model(x), y, reduction="none"), index)

    @torch.compile(fullgraph=True)
    def theirs(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return cross_entropy(model(x), y)

    times: dict[str, list[float]] = {"with": [], "without": []}
    for epoch in range(rounds + 1):
        for step, (x, y, index) in enumerate(DataLoader(train_data, batch_size=batch, sampler=train_data.sampler)):
            for who in ("with", "without") if (epoch + step) % 2 else ("without", "with"):
                start = time.perf_counter()
                loss = ours(x, y, index) if who == "with" else theirs(x, y)
                loss.backward()  # type: ignore[no-untyped-call]
                if epoch:
                    times[who].append(time.perf_counter() - start)
    return Comparison(
        "compiled step of a small CNN, same samples", {who: statistics.median(t) for who, t in times.items()}, 1.01
    )


def realised_over_ideal(rounds: int) -> float:
    """How much of the samples saved is saved in time: pruned and full epochs of a small CNN on real images, in turn."""
    split = fashion.load().train
    images = (torch.from_numpy(split.images).unsqueeze(1) / 255 - fashion.MEAN) / fashion.STD
    data = TensorDataset(images, torch.from_numpy(split.labels).long())
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, 2), nn.ReLU(), nn.Conv2d(32, 64, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(2304, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def epoch(train_data: InfoBatch) -> tuple[float, int]:
        start, seen = time.perf_counter(), 0
        for x, y in DataLoader(train_data, batch_size=128, sampler=train_data.sampler):
            optimizer.zero_grad()
            train_data.update(cross_entropy(model(x), y, reduction="none")).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            seen += len(x)
        return time.perf_counter() - start, seen

    runs = [InfoBatch(data, 1000, method=method) for method in ("full", "infobatch")]
    found = [[epoch(train_data) for train_data in runs] for _ in range(rounds + 1)][1:]
    (full_time, full_seen), (time_, seen) = [
        (statistics.median(pair[k][0] for pair in found), statistics.median(pair[k][1] for pair in found))
        for k in (0, 1)
    ]
    return (full_time / time_) / (full_seen / seen)


def loading(workers: int, rounds: int) -> Comparison:
    """A pass of the loader over the wrapped against the bare dataset."""
    data = TensorDataset(torch.randn(20_000, 16), torch.randint(0, 10, (20_000,)))
    train_data = InfoBatch(data, 1000, method="full")
    ours = DataLoader(train_data, batch_size=128, sampler=train_data.sampler, num_workers=workers)
    theirs = DataLoader(data, batch_size=128, shuffle=True, num_workers=workers)
    return compare(
        f"loader, {workers} workers", {"wrapped": lambda: list(ours), "bare": lambda: list(theirs)}, rounds, 1.02
    )


def run(rounds: int) -> list[Comparison]:
    """All comparisons of this page."""
    return [
        update_only(128, rounds),
        update_only(1024, rounds),
        whole_step(rounds),
        compiled_step(rounds),
        loading(0, rounds),
        loading(2, max(rounds // 2, 3)),
    ]
