"""Lightning's Trainer: one callback, and ``update`` in ``training_step``.

    python examples/lightning_trainer.py
    python examples/lightning_trainer.py --devices 2    # two processes, DDP

The callback keeps validation, progress bars and checkpoints right while epochs get shorter and longer, and logs the
share kept, the mean score and the saving. The schedule steps after every batch, so it is paced: it ends where it would
with full data.
"""

import argparse
from pathlib import Path

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import infobatch
from infobatch.integrations.lightning import InfoBatchCallback
from infobatch.lab.data import fashion


class Classifier(LightningModule):
    """A small network for 28 × 28 images."""

    def __init__(self, train_data: infobatch.InfoBatch) -> None:
        super().__init__()
        self.train_data = train_data
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
        self.criterion = nn.CrossEntropyLoss(reduction="none")

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        x, y = batch
        return self.train_data.update(self.criterion(self.net(x), y))  # 3

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        x, y = batch
        self.log("accuracy", (self.net(x).argmax(1) == y).float().mean(), prog_bar=True, sync_dist=True)

    def configure_optimizers(self) -> tuple[list, list]:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        steps = self.trainer.estimated_stepping_batches  # those of full data
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=steps + 1)
        schedule = infobatch.paced(schedule, self.train_data)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--batch-size", type=int, default=64, help="per process")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("lightning"), help="of the log and the last checkpoint")
    options = parser.parse_args()

    data = fashion.load()
    train_data = infobatch.InfoBatch(as_dataset(data.train.head(options.samples)), options.epochs)  # 1
    train_loader = DataLoader(train_data, options.batch_size, sampler=train_data.sampler)  # 2
    torch.manual_seed(0)
    trainer = Trainer(
        max_epochs=options.epochs,
        devices=options.devices,
        default_root_dir=options.folder,
        logger=CSVLogger(options.folder),
        callbacks=[InfoBatchCallback(train_data)],  # 4
    )
    trainer.fit(Classifier(train_data), train_loader, DataLoader(as_dataset(data.test), 500))

    if trainer.is_global_zero:
        print(train_data.summary())
        print(f"test accuracy {float(trainer.callback_metrics['accuracy']):.1%} with {trainer.world_size} processes")


def as_dataset(split: fashion.Split) -> TensorDataset:
    images = torch.from_numpy(split.images).float() / 255
    return TensorDataset((images - fashion.MEAN) / fashion.STD, torch.from_numpy(split.labels).long())


if __name__ == "__main__":
    main()
