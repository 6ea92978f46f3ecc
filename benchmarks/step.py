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
from infobatch.lab.data import fashion

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


def whole_step(rounds: int, keep_steps: bool = False) -> Comparison:
    """A training epoch with the library against as many samples, in batches of the same sizes, without it."""
    size, batch = 4096, 128
    images, labels = torch.randn(size, 3, 32, 32), torch.randint(0, 10, (size,))
    model = small_cnn()
    model(images[:2])
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    method = {"method": "random", "ratio": 0.4, "rescale": True} if keep_steps else {"method": "full"}
    train_data = InfoBatch(TensorDataset(images, labels), 1000, **method)  # type: ignore[arg-type]
    train_data.set_epoch(1)
    ours: DataLoader[object] = DataLoader(train_data, batch_size=batch, sampler=train_data.sampler)
    theirs: DataLoader[object] = DataLoader(train_data.dataset, batch_size=batch, shuffle=True)
    if keep_steps:
        ours = DataLoader(train_data, batch_sampler=train_data.batches(batch))
        sizes = [len(indices) for indices in train_data.batches(batch)]
        parts = torch.randperm(size)[: sum(sizes)].split(sizes)
        theirs = DataLoader(train_data.dataset, batch_sampler=[part.tolist() for part in parts])

    def epoch(loader: DataLoader[object], mean: Callable[[torch.Tensor], torch.Tensor]) -> None:
        for x, y in loader:  # type: ignore[misc]
            optimizer.zero_grad()
            mean(cross_entropy(model(x), y, reduction="none")).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return compare(
        f"end-to-end epoch of a small CNN, same samples{', steps that stay' if keep_steps else ''}",
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


def network(width: int) -> nn.Module:
    """Two convolutions: a step of the one with 32 channels takes some 20 ms, of the one with 128 ten times that."""
    convolutions = nn.Conv2d(1, width, 3, 2), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2), nn.ReLU()
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(72 * width, 10))


def realised_over_ideal(rounds: int, width: int = 32, keep_steps: bool = False) -> float:
    """How much of 40 % fewer samples is saved in time: pruned and full epochs of a CNN on real images, in turn."""
    split = fashion.load().train
    images = (torch.from_numpy(split.images).unsqueeze(1) / 255 - fashion.MEAN) / fashion.STD
    data = TensorDataset(images, torch.from_numpy(split.labels).long())
    model = network(width)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def epoch(train_data: InfoBatch) -> tuple[float, int]:
        start, seen = time.perf_counter(), 0
        how = {"batch_sampler": train_data.batches(128)} if keep_steps else {"sampler": train_data.sampler}
        for x, y in DataLoader(train_data, **how if keep_steps else {"batch_size": 128, **how}):  # type: ignore[arg-type]
            optimizer.zero_grad()
            train_data.update(cross_entropy(model(x), y, reduction="none")).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            seen += len(x)
        return time.perf_counter() - start, seen

    options = {"method": "random", "ratio": 0.4, "rescale": True}
    runs = [InfoBatch(data, 1000, method="full"), InfoBatch(data, 1000, **options)]  # type: ignore[arg-type]
    found = [[epoch(train_data) for train_data in runs] for _ in range(rounds + 1)][1:]
    (full_time, full_seen), (time_, seen) = [
        (statistics.median(pair[k][0] for pair in found), statistics.median(pair[k][1] for pair in found))
        for k in (0, 1)
    ]
    return (full_time / time_) / (full_seen / seen)


def speed_ups(rounds: int) -> dict[str, float]:
    """Realised ÷ ideal speed-up at 40 % saved, in both step modes, for a small and a large network."""
    return {
        f"realised / ideal speed-up at 40 % saved, {size} network, {mode}{bar}": realised_over_ideal(
            rounds if width == 32 else max(rounds // 3, 3), width, keep_steps
        )
        for size, width in (("small", 32), ("large", 128))
        for mode, keep_steps, bar in (("fewer steps", False, " (bar 0.97)"), ("steps that stay", True, ""))
    }


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
        whole_step(rounds, keep_steps=True),
        compiled_step(rounds),
        loading(0, rounds),
        loading(2, max(rounds // 2, 3)),
    ]
