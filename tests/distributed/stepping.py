"""What ranks do in the tests of steps that stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from distributed.scenarios import note, numbers
from infobatch import InfoBatch

SIZE, BATCH = 75, 12


def make(index_key: str | None = None) -> tuple[InfoBatch, Any]:
    train_data = InfoBatch(numbers(SIZE), 6, index_key=index_key)
    batch = BATCH // train_data.sampler.num_replicas
    return train_data, DataLoader(train_data, batch_sampler=train_data.batches(batch))


def loss_of(x: torch.Tensor, epoch: int) -> torch.Tensor:
    return 1 + torch.sin(x * 1.7 + epoch)


def train(folder: Path, index_key: str | None) -> None:
    """A whole training."""
    train_data, loader = make(index_key)
    seen, means, plans = [], [], []
    for epoch in range(6):
        train_data.set_epoch(epoch)
        plans.append(train_data.plan.indices.tolist())
        for x, *index in loader:
            means.append(float(train_data.update(loss_of(x, epoch), *index)))
            seen.append([epoch, *x.long().tolist()])
    note(folder, {"seen": seen, "means": means, "plans": plans})


def stop(folder: Path) -> None:
    """Stop after the second step of the pruned epoch 1."""
    train_data, loader = make()
    for (x,) in loader:
        train_data.update(loss_of(x, 0))
    train_data.set_epoch(1)
    seen: list[int] = []
    for number, (x,) in enumerate(loader, 1):
        train_data.update(loss_of(x, 1))
        seen += x.long().tolist()
        if number == 2:
            break
    torch.save(train_data.state_dict(), folder / f"state-{train_data.sampler.rank}.pt")
    note(folder, {"seen": seen, "plan": train_data.plan.indices.tolist()})


def go_on(folder: Path) -> None:
    """The rest of that epoch."""
    train_data, loader = make()
    train_data.load_state_dict(torch.load(folder / "state-0.pt", weights_only=True))
    seen: list[int] = []
    steps = 0
    for (x,) in loader:
        train_data.update(loss_of(x, 1))
        seen += x.long().tolist()
        steps += 1
    train_data.set_epoch(2)
    note(folder, {"seen": seen, "steps": steps})
