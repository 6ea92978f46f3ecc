"""What ranks do in the tests of how they meet: uneven steps, calls on one rank only, groups of a mesh."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader

from distributed.scenarios import message_of, note, numbers
from infobatch import InfoBatch
from infobatch.distributed.ranks import STATE, Ranks


def train_epoch(train_data: InfoBatch, loader: Any) -> None:
    for x, *index in loader:
        train_data.update(x, *index)


def timed(work: Callable[[], Any]) -> tuple[str, float]:
    """(the error that ``work`` ends with, how long it took)."""
    start = time.monotonic()
    return message_of(work), time.monotonic() - start


def plans_of_different_length(folder: Path) -> None:
    """Rank 1 was given an order with fewer samples."""
    rank = dist.get_rank()
    train_data = InfoBatch(numbers(20), 3, order=np.arange(20 - 6 * rank))
    train_epoch(train_data, DataLoader(train_data, batch_size=5, sampler=train_data.sampler))
    note(folder, message_of(lambda: train_data.set_epoch(1)))


def lonely_call(folder: Path, call: str, caller: int) -> None:
    """One rank makes a call that all must make; the others are busy with something else."""
    train_data = InfoBatch(numbers(20), 3, patience=2)
    train_epoch(train_data, DataLoader(train_data, batch_size=5, sampler=train_data.sampler))
    found = "", 0.0
    if dist.get_rank() == caller:
        work = {
            "set_epoch": lambda: train_data.set_epoch(1),
            "iter": lambda: next(iter(train_data.sampler)),
            "state_dict": train_data.state_dict,
        }[call]
        found = timed(work)
    else:
        time.sleep(25)
    note(folder, list(found))


def different_calls(folder: Path) -> None:
    """Rank 0 starts an epoch while rank 1 takes a state."""
    train_data = InfoBatch(numbers(20), 3)
    train_epoch(train_data, DataLoader(train_data, batch_size=5, sampler=train_data.sampler))
    work = (lambda: train_data.set_epoch(1)) if dist.get_rank() == 0 else train_data.state_dict
    note(folder, message_of(work))


def uneven_steps(folder: Path, by_index: bool) -> None:
    """The ranks take a state after different numbers of steps, and a new run goes on from it."""
    rank = dist.get_rank()
    options = {"index_key": "index"} if by_index else {}
    train_data = InfoBatch(numbers(31), 3, **options)
    loader = DataLoader(train_data, batch_size=3, sampler=train_data.sampler)
    seen: list[int] = []
    for number, (x, *index) in enumerate(loader, 1):
        train_data.update(x, *index)
        seen += x.long().tolist()
        if number == 2 + rank:
            break
    state = train_data.state_dict()
    resumed = InfoBatch(numbers(31), 3, **options)
    resumed.load_state_dict(state)
    rest: list[int] = []
    for x, *index in DataLoader(resumed, batch_size=3, sampler=resumed.sampler):
        resumed.update(x, *index)
        rest += x.long().tolist()
    resumed.set_epoch(1)
    note(
        folder,
        {"seen": seen, "rest": rest, "checksum": state["checksum"], "scores": resumed.scores.tolist()},
    )


def two_losses(folder: Path, together: bool) -> None:
    """Two losses for every sample, all of them 1: the mean over the ranks is 1 in every step of full epochs."""
    train_data = InfoBatch(numbers(21), 3, method="full", index_key="index")
    loader = DataLoader(train_data, batch_size=4, sampler=train_data.sampler)
    means = []
    for epoch in range(2):
        train_data.set_epoch(epoch)
        for x, index in loader:
            ones = torch.ones_like(x)
            if together:
                means.append(float(train_data.update(torch.cat([ones, ones]), torch.cat([index, index]))))
            else:
                means += [float(train_data.update(ones, index)) for _ in range(2)]
    note(folder, means)


def batch_sizes(folder: Path) -> None:
    """No plan ends in a batch that full data does not have."""
    train_data = InfoBatch(numbers(2048), 6)
    loader = DataLoader(train_data, batch_size=32, sampler=train_data.sampler)
    found = []
    for epoch in range(6):
        train_data.set_epoch(epoch)
        sizes = set()
        for (x,) in loader:
            train_data.update(torch.sin(x * 7 + epoch).abs() + 0.1)
            sizes.add(len(x))
        found.append([len(train_data.plan), sorted(sizes)])
    note(folder, found)


def mesh(folder: Path) -> None:
    """Two data-parallel groups of a 2 × 2 mesh: tensor-parallel peers get the same samples."""
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    train_data = InfoBatch(numbers(37), 5, group=grid["data"].get_group(), index_key="index")
    loader = DataLoader(train_data, batch_size=4, sampler=train_data.sampler)
    seen, plans = [], []
    for epoch in range(5):
        train_data.set_epoch(epoch)
        plans.append(train_data.plan.indices.tolist())
        for x, index in loader:
            train_data.update(torch.sin(x * 7 + epoch).abs(), index)
            seen.append([epoch, *index.tolist()])
        state = train_data.state_dict()
    resumed = InfoBatch(numbers(37), 5, group=grid["data"].get_group(), index_key="index")
    resumed.load_state_dict(state)
    note(
        folder,
        {
            "place": [grid["data"].get_local_rank(), grid["tensor"].get_local_rank()],
            "replicas": train_data.sampler.num_replicas,
            "seen": seen,
            "plans": plans,
            "resumed": resumed.epoch,
            "scores": train_data.scores.tolist(),
        },
    )


def late_batches(folder: Path) -> None:
    """A loop that fetches ahead across epochs."""
    train_data = InfoBatch(numbers(64), 8, index_key="index")
    loader = DataLoader(train_data, batch_size=4, sampler=train_data.sampler)

    def train() -> None:
        held = None
        for _ in range(3):
            for batch in loader:
                if held is not None:
                    train_data.update(*held)
                held = batch

    note(folder, message_of(train))


def meet(folder: Path) -> None:
    """All ranks meet."""
    note(folder, Ranks().meet(STATE, dist.get_rank(), 7))
