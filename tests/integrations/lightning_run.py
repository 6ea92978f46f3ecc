"""A small training on Fashion-MNIST, by Lightning's Trainer or by Fabric, that records what it has seen."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from lightning.fabric import Fabric
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint, ProgressBar
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR
from torch.utils.data import DataLoader, Dataset

import infobatch
from infobatch import InfoBatch
from infobatch.integrations.lightning import InfoBatchCallback, epochs
from infobatch.lab.data import fashion

SIZE = 90
BATCH = 8
EPOCHS = 5  # the first and the last are full

for name in ("lightning.pytorch", "lightning.fabric"):
    logging.getLogger(name).setLevel(logging.ERROR)


class Images(Dataset):
    """Sample i is (image, label, i), so that batches tell which samples they hold."""

    def __init__(self, split: fashion.Split) -> None:
        self.x = (torch.from_numpy(split.images).float() / 255 - fashion.MEAN).flatten(1)[:, ::4] / fashion.STD
        self.y = torch.from_numpy(split.labels).long()

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        return self.x[i], self.y[i], i


_data = fashion.load()
TRAIN, TEST = Images(_data.train.head(SIZE)), Images(_data.test.head(16))


def infobatch_of(**options: Any) -> InfoBatch:
    return InfoBatch(TRAIN, EPOCHS, **{"seed": 3, "delta": 0.8, **options})


def loader_of(data: Any, workers: int = 0, stay: bool = False, batch_size: int = BATCH, **options: Any) -> DataLoader:
    """A loader over our sampler, if it is our data; with ``stay``, one whose steps stay."""
    how: dict[str, Any] = {"batch_size": batch_size, "shuffle": True}
    if isinstance(data, InfoBatch):
        how = {"batch_size": batch_size, "sampler": data.sampler}
        if stay:
            how = {"batch_sampler": data.batches(batch_size)}
    return DataLoader(data, num_workers=workers, **how, **options)


def network() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(196, 16), nn.ReLU(), nn.Linear(16, 10))


@dataclass
class Seen:
    """What happened, in order."""

    batches: list[tuple[int, list[int]]] = field(default_factory=list)  # epoch and samples of each
    losses: dict[int, float] = field(default_factory=dict)  # the last one of each sample
    rates: list[tuple[int, float]] = field(default_factory=list)  # epoch and learning rate of each optimiser step
    validations: list[tuple[int, int]] = field(default_factory=list)  # epoch, and batches done in it
    totals: dict[int, int] = field(default_factory=dict)  # of the progress bar, by epoch

    def note(self, epoch: int, samples: list[int], losses: list[float]) -> None:
        self.batches.append((epoch, samples))
        self.losses.update(zip(samples, losses, strict=True))

    def samples(self, epoch: int) -> list[int]:
        return [i for e, batch in self.batches if e == epoch for i in batch]

    def lengths(self) -> list[int]:
        """Batches in each epoch."""
        return [sum(e == epoch for e, _ in self.batches) for epoch in range(EPOCHS)]


def result(net: nn.Module, optimizer: Any, train_data: InfoBatch) -> dict[str, Any]:
    """Weights and books at the end of a run, to compare bit for bit."""
    stats = train_data.stats
    return {
        "weights": [p.detach().clone() for p in net.parameters()],
        "scores": train_data.state_dict()["scores"],
        "epochs": [[e.epoch, e.total, e.kept, e.seen] for e in stats.epochs],
        "rate": optimizer.param_groups[0]["lr"],
    }


# -- the Trainer ----------------------------------------------------------------------------------------------------


class Net(LightningModule):
    """A small network that calls ``update``: by position, or by index where the samples carry one."""

    def __init__(self, train_data: InfoBatch | None, schedule: str | None = None) -> None:
        super().__init__()
        self.train_data, self.schedule = train_data, schedule
        self.net = network()
        self.seen = Seen()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y, i, *carried = batch
        loss = cross_entropy(self.net(x), y, reduction="none")
        self.seen.note(self.current_epoch, i.tolist(), loss.tolist())
        return loss.mean() if self.train_data is None else self.train_data.update(loss, *carried)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y, _ = batch
        self.log("accuracy", (self.net(x).argmax(1) == y).float().mean(), sync_dist=True)
        if batch_idx == 0:
            self.seen.validations.append((self.current_epoch, self.trainer.fit_loop.batch_idx + 1))

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, closure: Any) -> None:
        super().optimizer_step(epoch, batch_idx, optimizer, closure)
        self.seen.rates.append((epoch, optimizer.param_groups[0]["lr"]))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        if self.schedule is None:
            return optimizer
        if self.schedule == "epoch":
            return [optimizer], [CosineAnnealingLR(optimizer, EPOCHS)]
        scheduler = OneCycleLR(optimizer, 0.1, total_steps=self.trainer.estimated_stepping_batches + 1)
        if self.schedule == "paced":
            scheduler = infobatch.paced(scheduler, self.train_data)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


class Bar(ProgressBar):
    """A progress bar that only remembers its totals."""

    def on_train_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
        pl_module.seen.totals[trainer.current_epoch] = self.total_train_batches

    def disable(self) -> None: ...

    def enable(self) -> None: ...


def trainer_of(folder: Path, *callbacks: Callback, **options: Any) -> Trainer:
    """A Trainer that is quiet; the progress bar comes first, so that it asks before all others."""
    usual = {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": EPOCHS,
        "logger": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "enable_checkpointing": any(isinstance(callback, ModelCheckpoint) for callback in callbacks),
    }
    bar = [] if any(isinstance(callback, ProgressBar) for callback in callbacks) else [Bar()]
    return Trainer(default_root_dir=folder, callbacks=[*bar, *callbacks], **{**usual, **options})


def fit(
    folder: Path,
    train_data: InfoBatch | None,
    *callbacks: Callback,
    schedule: str | None = None,
    loader: dict[str, Any] | None = None,
    ckpt_path: Path | None = None,
    **options: Any,
) -> Net:
    """Train to the end, on full data where ``train_data`` is None."""
    net = Net(train_data, schedule)
    ours = [] if train_data is None else [InfoBatchCallback(train_data)]
    trainer = trainer_of(folder, *ours, *callbacks, **options)
    train_loader = loader_of(TRAIN if train_data is None else train_data, **(loader or {}))
    trainer.fit(net, train_loader, DataLoader(TEST, BATCH), ckpt_path=ckpt_path)
    return net


class Made(LightningDataModule):
    """Makes its data in ``setup``, as Lightning teaches."""

    def __init__(self, loader: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__()
        self.loader, self.options = loader or {}, options

    def setup(self, stage: str) -> None:
        if stage == "fit":
            self.train_data = infobatch_of(**self.options)

    def train_dataloader(self) -> DataLoader:
        return loader_of(self.train_data, **self.loader)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(TEST, BATCH)


class NetOfMade(Net):
    """Takes the data that a data module has made."""

    def setup(self, stage: str) -> None:
        self.train_data = self.trainer.datamodule.train_data


def fit_made(
    folder: Path,
    *callbacks: Callback,
    data: Made | None = None,
    schedule: str | None = "paced",
    ckpt_path: Path | None = None,
    **options: Any,
) -> Net:
    """Train to the end on data that is made in ``setup``; the callback is given none."""
    net = NetOfMade(None, schedule)
    trainer = trainer_of(folder, InfoBatchCallback(), *callbacks, **options)
    trainer.fit(net, datamodule=data or Made(), ckpt_path=ckpt_path)
    return net


def end_of(net: Net) -> dict[str, Any]:
    assert net.train_data is not None
    return result(net, net.trainer.optimizers[0], net.train_data)


# -- Fabric ---------------------------------------------------------------------------------------------------------


def fabric_fit(
    fabric: Fabric,
    train_data: InfoBatch,
    *,
    loader: dict[str, Any] | None = None,
    accumulate: int = 1,
    save_at: dict[int, Path] | None = None,  # after so many batches
    resume: Path | None = None,
) -> tuple[Seen, dict[str, Any]]:
    """The loop that a user of Fabric would write."""
    seen, net = Seen(), network()
    model, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9))
    stay = (loader or {}).get("stay", False)
    batches = fabric.setup_dataloaders(loader_of(train_data, **(loader or {})), use_distributed_sampler=not stay)
    full_steps = EPOCHS * -(-SIZE // (batches.batch_sampler.batch_size * fabric.world_size * accumulate))
    schedule = OneCycleLR(optimizer, 0.1, total_steps=full_steps + 1)
    if not stay:
        schedule = infobatch.paced(schedule, train_data)
    state = {"model": model, "optimizer": optimizer, "schedule": schedule, "train_data": train_data, "done": 0}
    if resume is not None:
        fabric.load(resume, state)
    for epoch in epochs(train_data, batches):
        last = train_data.batches_done + len(batches)
        seen.totals[epoch] = last
        for x, y, i, *carried in batches:
            state["done"] += 1
            steps_now = (train_data.batches_done + 1) % accumulate == 0 or train_data.batches_done + 1 == last
            with fabric.no_backward_sync(model, enabled=not steps_now):
                loss = cross_entropy(model(x), y, reduction="none")
                seen.note(epoch, i.tolist(), loss.tolist())
                fabric.backward(train_data.update(loss, *carried) / accumulate)
            if steps_now:
                seen.rates.append((epoch, schedule.get_last_lr()[0]))
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
            if state["done"] in (save_at or {}):
                fabric.save(save_at[state["done"]], state)
    return seen, result(net, optimizer, train_data)
