"""A small training run on real images: Accelerate's loop with ``prepare``, and the plain loop it must agree with."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR
from torch.utils.data import DataLoader, Dataset, TensorDataset
from tqdm.auto import tqdm

import infobatch
from infobatch import InfoBatch
from infobatch.integrations.accelerate import prepare
from infobatch.lab.data import fashion

SIZE = 91  # with batches of 8: a short last batch and, with two of them to a step, a short last step
EPOCHS = 4
DELTA = 0.75  # epochs 1 and 2 are pruned, 0 and 3 are full


def images(split: fashion.Split) -> TensorDataset:
    return TensorDataset(torch.from_numpy(split.images).float() / 255, torch.from_numpy(split.labels).long())


FASHION = fashion.load()
TRAIN, VALID = images(FASHION.train.head(SIZE)), images(FASHION.test.head(32))


class Augmented(Dataset):
    """The images, turned at random and with random noise: by Python's and by torch's generators."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = TRAIN[index]
        return (x.flip(1) if random.random() < 0.5 else x) + 0.3 * torch.randn(x.shape), y


@dataclass
class Trace:
    """What a run has seen and done, on this process."""

    seen: list[list[int]] = field(default_factory=list)  # of each epoch
    plans: list[list[int]] = field(default_factory=list)
    stand_for: list[list[float]] = field(default_factory=list)  # of each epoch's plan: the weights
    losses: dict[int, float] = field(default_factory=dict)  # the last one of each sample
    rates: list[list[float]] = field(default_factory=list)  # of each epoch, after each optimiser step
    validated: list[int] = field(default_factory=list)  # images
    totals: list[tuple[int, int]] = field(default_factory=list)  # the progress bar's count and total
    gathered: list[int] = field(default_factory=list)  # samples of each epoch's last step, by gather_for_metrics
    weights: list[torch.Tensor] = field(default_factory=list)
    scores: np.ndarray = field(default_factory=lambda: np.empty(0))


def parts(
    batch: int,
    full: bool,
    steps: int,
    stay: bool = False,
    data: Dataset | None = None,
    dropout: float = 0.0,
    pruning: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[InfoBatch, DataLoader, nn.Module, Any, Any]:
    """The objects of a run, always the same ones; with ``stay``, its steps stay those of full data."""
    method = {"method": "full"} if full else {"delta": DELTA}
    train_data = InfoBatch(
        TRAIN if data is None else data, EPOCHS, index_key="index", **{"seed": 5, **method, **(pruning or {})}
    )
    cut = {"batch_size": batch, "sampler": train_data.sampler}
    if stay:
        cut = {"batch_sampler": train_data.batches(batch)}
    loader = DataLoader(train_data, **cut, **options)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Dropout(dropout), nn.Linear(784, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = OneCycleLR(optimizer, max_lr=0.1, total_steps=EPOCHS * steps + 1)
    return train_data, loader, model, optimizer, scheduler


def accelerated(
    *,
    batch: int = 8,
    accumulate: int = 1,
    full: bool = False,
    save: tuple[int, int, Path] | None = None,
    load: Path | None = None,
    schedule: Callable[[LRScheduler, InfoBatch], LRScheduler] = lambda scheduler, _: scheduler,
    config: dict[str, Any] | None = None,
    **options: Any,
) -> Trace:
    """Train by Accelerate. ``save=(epoch, batch, folder)`` stops there; ``load`` goes on from such a folder."""
    config = {"dataloader_config": DataLoaderConfiguration(**config)} if config else {}
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate, **config)
    steps = -(-SIZE // (batch * accelerator.num_processes * accumulate))
    train_data, loader, model, optimizer, scheduler = parts(batch, full, steps, **options)
    scheduler = schedule(scheduler, train_data)
    valid = DataLoader(VALID, batch)
    model, optimizer, loader, scheduler, valid = prepare(accelerator, model, optimizer, loader, scheduler, valid)
    if load is not None:
        accelerator.load_state(str(load))
    trace = Trace()
    for epoch in range(train_data.epoch, EPOCHS):
        loader.set_epoch(epoch)
        trace.plans.append(train_data.plan.indices.tolist())
        trace.stand_for.append(train_data.plan.weights.tolist())
        trace.seen.append([])
        trace.rates.append([])
        bar = tqdm(loader, file=io.StringIO())
        for number, (x, y, index) in enumerate(bar):
            with accelerator.accumulate(model):
                loss = cross_entropy(model(x), y, reduction="none")
                accelerator.backward(train_data.update(loss, index))
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            trace.seen[-1] += index.tolist()
            trace.losses.update(zip(index.tolist(), loss.tolist(), strict=True))
            last = len(accelerator.gather_for_metrics(index))
            if accelerator.sync_gradients:
                trace.rates[-1].append(scheduler.get_last_lr()[0])
            if save is not None and (epoch, number) == save[:2]:
                accelerator.save_state(str(save[2]))
                return trace
        trace.gathered.append(last)
        trace.totals.append((bar.n, bar.total))
        trace.validated.append(sum(len(accelerator.gather_for_metrics(y)) for _, y in valid))
        assert train_data.epoch == epoch
    train_data.set_epoch(EPOCHS)  # the ranks exchange their scores
    return ended(trace, train_data, accelerator.unwrap_model(model))


def plain(*, batch: int = 8, accumulate: int = 1, full: bool = False, stay: bool = False) -> Trace:
    """The same training in torch's own loop, on one process; where steps stay, with the bare schedule."""
    steps = -(-SIZE // (batch * accumulate))
    train_data, loader, model, optimizer, scheduler = parts(batch, full, steps, stay)
    if not stay:
        scheduler = infobatch.paced(scheduler, train_data)
    trace = Trace()
    for epoch in range(EPOCHS):
        train_data.set_epoch(epoch)
        trace.plans.append(train_data.plan.indices.tolist())
        trace.seen.append([])
        trace.rates.append([])
        for number, (x, y, index) in enumerate(loader):
            loss = cross_entropy(model(x), y, reduction="none")
            (train_data.update(loss, index) / accumulate).backward()
            trace.seen[-1] += index.tolist()
            if (number + 1) % accumulate == 0 or number + 1 == len(loader):
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                trace.rates[-1].append(scheduler.get_last_lr()[0])
    return ended(trace, train_data, model)


def replayed(ranks: list[Trace], steps: int) -> list[torch.Tensor]:
    """The weights that two processes must end with where steps stay, from what each has seen: by torch alone."""
    *_, model, optimizer, scheduler = parts(8, False, steps)
    for epoch, plan in enumerate(ranks[0].plans):
        weight = dict(zip(plan, ranks[0].stand_for[epoch], strict=True))
        scale = sum(weight.values()) / len(plan)
        odd = len(plan) % 2  # then the last sample of rank 1 is padding
        batches = [np.array_split(trace.seen[epoch], steps) for trace in ranks]
        for number, both in enumerate(zip(*batches, strict=True), 1):
            optimizer.zero_grad()
            for rank, batch in enumerate(both):
                last = odd and number == steps
                weights = torch.tensor([weight[i] for i in batch])
                weights[-1] *= not (last and rank == 1)
                x, y = (values[torch.from_numpy(batch)] for values in TRAIN.tensors)
                loss = cross_entropy(model(x), y, reduction="none") @ weights
                (loss / (len(batch) - last / 2) / scale / 2).backward()
            optimizer.step()
            scheduler.step()
    return [p.detach() for p in model.parameters()]


def ended(trace: Trace, train_data: InfoBatch, model: nn.Module) -> Trace:
    trace.weights = [p.detach().clone() for p in model.parameters()]
    trace.scores = train_data.scores.copy()
    return trace


def same_bits(one: Trace, other: Trace) -> bool:
    """Whether two runs ended with the same weights and scores."""
    return all(torch.equal(a, b) for a, b in zip(one.weights, other.weights, strict=True)) and np.array_equal(
        one.scores, other.scores
    )
