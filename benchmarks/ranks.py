"""Several processes: the step with and without the library, and the exchange of scores once an epoch."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from infobatch import InfoBatch

from .plan import Nothing
from .timing import Comparison

STEPS, BATCH = 60, 64


def launch(worker: Callable[..., dict[str, float]], world: int, *arguments: Any) -> dict[str, float]:
    """Run a function of a module on ``world`` gloo processes; rank 0's answer."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.pt"
        mp.start_processes(_rank, (worker, world, port, answer, arguments), world, start_method="spawn")
        found: dict[str, float] = torch.load(answer)
        return found


def _rank(
    rank: int,
    worker: Callable[..., dict[str, float]],
    world: int,
    port: int,
    answer: Path,
    arguments: tuple[Any, ...],
) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    found = worker(*arguments)
    if rank == 0:
        torch.save(found, answer)
    dist.destroy_process_group()


def steps(rounds: int) -> dict[str, float]:
    """Seconds per epoch of the same samples with and without the library, a step of each in turn.

    The time of a step includes fetching its batch, so that of the first one includes the plan and the exchange. An
    epoch's time is the sum over its steps of the medians over all epochs.
    """
    size = STEPS * BATCH * dist.get_world_size()
    data = TensorDataset(torch.randn(size, 3, 16, 16), torch.randint(0, 10, (size,)))
    model = DistributedDataParallel(nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6272, 10)))
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    train_data = InfoBatch(data, 10_000, method="full")
    loaders = {
        "with": DataLoader(train_data, BATCH, sampler=train_data.sampler),
        "without": DataLoader(data, BATCH, sampler=DistributedSampler(data)),
    }
    means = {"with": train_data.update, "without": torch.Tensor.mean}
    times: dict[str, list[list[float]]] = {who: [[] for _ in range(STEPS)] for who in loaders}
    for epoch in range(rounds + 1):  # the first one warms up
        batches = {who: iter(loader) for who, loader in loaders.items()}
        for step in range(STEPS):
            for who in ("with", "without") if (epoch + step) % 2 else ("without", "with"):
                start = time.perf_counter()
                x, y = next(batches[who])
                optimizer.zero_grad()
                means[who](cross_entropy(model(x), y, reduction="none")).backward()
                optimizer.step()
                if epoch:
                    times[who][step].append(time.perf_counter() - start)
    return {who: sum(median(found) for found in by_step) for who, by_step in times.items()}


def exchange(size: int, rounds: int) -> dict[str, float]:
    """Seconds to give every rank the scores of all."""
    train_data = InfoBatch(Nothing(size), 10, method="full")
    times = []
    for _ in range(rounds):
        dist.barrier()
        start = time.perf_counter()
        train_data._run._share_scores()
        times.append(time.perf_counter() - start)
    return {"exchange": median(times)}


def run(rounds: int) -> list[Comparison]:
    """The step of two ranks."""
    return [Comparison("2-rank epoch of a small CNN, same samples", launch(steps, 2, rounds), 1.02)]


def exchanges(sizes: tuple[int, ...] = (1_281_167, 14_197_122)) -> dict[str, float]:
    """The exchange of a full epoch's scores, spread over its steps at batch 256."""
    found = {}
    for world in (2, 4):
        for size in sizes:
            seconds = launch(exchange, world, size, 5)["exchange"]
            found[f"score exchange, {world} ranks, N={size:,}, µs per step"] = seconds * 1e6 / (size / 256 / world)
    return found
