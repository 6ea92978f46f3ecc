"""Drawing a plan and handing it out, against torch's full shuffle and against a written-out numpy version."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import deque
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import BatchSampler, Dataset, RandomSampler

from infobatch import InfoBatch, methods
from infobatch.core.thresholds import exact_mean, quantiles

from .timing import Comparison, compare

BATCH = 256


class Nothing(Dataset[int]):
    """A dataset of a given length."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        return index


def scored(size: int, method: str, epochs: int = 1000) -> InfoBatch:
    """An InfoBatch in which every sample has a score, as after the first epoch."""
    train_data = InfoBatch(Nothing(size), epochs, method=method)
    scores = np.random.default_rng(0).exponential(size=size).astype(np.float32)
    train_data._run.table.values.copy_(torch.from_numpy(scores))
    return train_data


def written_out(scores: NDArray[np.float32], ratio: float = 0.5) -> NDArray[np.intp]:
    """The mean rule as one would write it down: float64 mean, mask, exact-k choice, permutation of the kept."""
    rng = np.random.default_rng(0)
    below = scores < scores.mean(dtype=np.float64)
    low = np.flatnonzero(below)
    kept = rng.choice(low, len(low) - int(ratio * len(low)), replace=False, shuffle=False)
    return rng.permutation(np.concatenate([kept, np.flatnonzero(~below)]))


def ucb(scores: NDArray[np.float32], keep: float = 0.6) -> NDArray[np.intp]:
    """Sort-based selection, as UCB does it."""
    kept = np.argsort(-scores)[: int(keep * len(scores))]
    return np.random.default_rng(0).permutation(kept)


def exhaust(batches: Iterator[object]) -> None:
    """Run through an iterator at C speed."""
    deque(batches, maxlen=0)


def plan_and_iterate(size: int, method: str, bar: float, rounds: int) -> Comparison:
    """A whole epoch of batches as lists, ours pruned, torch's full."""
    train_data = scored(size, method)
    ours = BatchSampler(train_data.sampler, BATCH, False)
    theirs = BatchSampler(RandomSampler(Nothing(size)), BATCH, False)
    epochs = itertools.count(1)

    def epoch() -> None:
        train_data.set_epoch(next(epochs))
        exhaust(iter(ours))

    return compare(
        f"plan + iterate, {method}, N={size:,}",
        {"ours": epoch, "torch's shuffle + iterate": lambda: exhaust(iter(theirs))},
        rounds,
        bar if size >= 1_000_000 else None,
    )


def first_batch(size: int, rounds: int) -> Comparison:
    """From the start of an epoch to its first batch."""
    train_data = scored(size, "infobatch")
    ours = BatchSampler(train_data.sampler, BATCH, False)
    theirs = BatchSampler(RandomSampler(Nothing(size)), BATCH, False)
    epochs = itertools.count(1)

    def begin() -> None:
        train_data.set_epoch(next(epochs))
        next(iter(ours))

    return compare(
        f"first batch of an epoch, N={size:,}",
        {"ours": begin, "torch": lambda: next(iter(theirs))},
        rounds,
        0.15 if 10_000_000 <= size < 50_000_000 else None,
    )


def plan_alone(size: int, rounds: int) -> Comparison:
    """The plan, against other ways to make one."""
    train_data = scored(size, "infobatch")
    scores = train_data.scores
    epochs = itertools.count(1)
    return compare(
        f"plan, N={size:,}",
        {
            "ours": lambda: train_data.set_epoch(next(epochs)),
            "written out in numpy": lambda: written_out(scores),
            "sort-based UCB": lambda: ucb(scores),
        },
        rounds,
        0.7 if size >= 1_000_000 else None,
    )


def plan_within_budget(size: int, rounds: int) -> Comparison:
    """The plan of the noise budget against the quantile rule's."""
    runs = {name: scored(size, name) for name in ("infobatch-adaptive", "infobatch-quantile")}
    run, chance = runs["infobatch-adaptive"]._run, np.random.default_rng(1)
    for _ in range(2):  # what it remembers after two epochs
        losses = (run.table.numpy() * chance.exponential(size=size)).astype(np.float32)
        run.method.observe(losses, np.arange(size, dtype=np.int32), run.memory)
    epochs = itertools.count(2)
    return compare(
        f"plan within a noise budget, N={size:,}",
        {name: lambda train_data=train_data: train_data.set_epoch(next(epochs)) for name, train_data in runs.items()},
        rounds,
        1.5 if size >= 1_000_000 else None,
    )


def thresholds(size: int, rounds: int) -> list[Comparison]:
    """What table 11 compares: a threshold by mean, by percentile, by sorting."""
    scores = np.random.default_rng(0).exponential(size=size).astype(np.float32)
    ways = {
        "numpy mean": lambda: scores.mean(dtype=np.float64),
        "numpy percentile": lambda: np.percentile(scores, [20, 85]),
        "sort": lambda: np.sort(scores)[[size // 5, size * 17 // 20]],
    }
    return [
        compare(f"mean of scores, N={size:,}", {"ours": lambda: exact_mean(scores), **ways}, rounds),
        compare(
            f"20th and 85th percentile, N={size:,}",
            {"ours": lambda: quantiles(scores, [0.2, 0.85]), "numpy percentile": ways.pop("numpy percentile"), **ways},
            rounds,
        ),
    ]


def whole_training(size: int, epochs: int) -> float:
    """Seconds of everything the library does outside the user's step: plans, and indices handed out one by one."""
    train_data = scored(size, "infobatch", epochs)
    start = time.perf_counter()
    for epoch in range(epochs):
        train_data.set_epoch(epoch)
        exhaust(iter(train_data.sampler))
    return time.perf_counter() - start


def every_method(size: int, rounds: int) -> dict[str, float]:
    """Nanoseconds a sample that each method takes at the end of an epoch: what it remembers, and the next plan."""
    runs = {name: scored(size, name) for name in methods.list()}
    everything = np.arange(size, dtype=np.int32)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for epoch in range(1, rounds + 1):
        for name, train_data in runs.items():
            run = train_data._run
            start = time.perf_counter()
            train_data.method.observe(run.table.numpy(), everything, run.memory)
            train_data.set_epoch(epoch)
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) / size * 1e9 for name, found in times.items()}


def run(sizes: list[int], rounds: int) -> list[Comparison]:
    """All comparisons of this page."""
    found = []
    for size in sizes:
        times = max(1, min(rounds, round(50_000_000 / size)))  # torch's shuffle of 100M takes most of a minute
        found += [
            plan_and_iterate(size, "infobatch", 0.25, times),
            plan_and_iterate(size, "infobatch-quantile", 0.35, times),
            first_batch(size, times),
            plan_alone(size, times),
            plan_within_budget(size, times),
            *thresholds(size, times),
        ]
    return found
