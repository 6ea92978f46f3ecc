"""A training function of your own, compared over methods and seeds; Lightning.

    infobatch compare examples/own_lightning.py:train --methods full,infobatch,full-shortened --seeds 5

The Trainer's own checkpoint, in the run's folder, is where a run that was killed goes on.
"""

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import infobatch
from infobatch.integrations.lightning import InfoBatchCallback
from infobatch.lab.data import fashion

EPOCHS, SAMPLES, BATCH_SIZE = 4, 2_000, 64


class Classifier(LightningModule):
    """A small network for 28 × 28 images."""

    def __init__(self, train_data: infobatch.InfoBatch) -> None:
        super().__init__()
        self.train_data = train_data
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
        self.criterion = nn.CrossEntropyLoss(reduction="none")

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        x, y = batch
        return self.train_data.update(self.criterion(self.net(x), y))

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        x, y = batch
        self.log("accuracy", 100 * (self.net(x).argmax(1) == y).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def train(trial: infobatch.Trial) -> float:
    """Train a small network on pictures of clothes, and return its accuracy."""
    data = fashion.load()
    train_data = trial.prune(as_dataset(data.train.head(SAMPLES)), EPOCHS)  # 1
    trainer = Trainer(
        max_epochs=train_data.num_epochs,  # 2: shortened schedules have fewer
        default_root_dir=trial.folder,
        callbacks=[InfoBatchCallback(train_data), ModelCheckpoint(trial.folder, "last", enable_version_counter=False)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    last = trial.folder / "last.ckpt"
    trainer.fit(
        Classifier(train_data),
        trial.loader(train_data, BATCH_SIZE),  # 3
        DataLoader(as_dataset(data.test), 500),
        ckpt_path=last if last.exists() else None,
    )
    return float(trainer.callback_metrics["accuracy"])  # 4


def as_dataset(split: fashion.Split) -> TensorDataset:
    images = torch.from_numpy(split.images).float() / 255
    return TensorDataset((images - fashion.MEAN) / fashion.STD, torch.from_numpy(split.labels).long())
