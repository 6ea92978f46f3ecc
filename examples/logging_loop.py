"""Curves: the share kept, the mean score and the saving so far, beside your own in TensorBoard.

    python examples/logging_loop.py --folder runs
    tensorboard --logdir runs

The same line logs to W&B, ``log(train_data, wandb.init(), epoch)``, and to MLflow, ``log(train_data, mlflow, epoch)``.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

import infobatch
from infobatch.integrations.logging import log
from infobatch.lab.data import fashion


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--folder", default="runs")
    options = parser.parse_args()

    torch.manual_seed(0)
    train_data = infobatch.InfoBatch(as_dataset(fashion.load().train.head(options.samples)), options.epochs)
    loader = DataLoader(train_data, options.batch_size, sampler=train_data.sampler)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss(reduction="none")

    with SummaryWriter(options.folder) as writer:
        for epoch in range(options.epochs):
            for x, y in loader:
                loss = train_data.update(criterion(model(x), y))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            log(train_data, writer, epoch)
            writer.add_scalar("loss", loss.item(), epoch)
    print(train_data.summary())


def as_dataset(split: fashion.Split) -> TensorDataset:
    images = torch.from_numpy(split.images).float() / 255
    return TensorDataset((images - fashion.MEAN) / fashion.STD, torch.from_numpy(split.labels).long())


if __name__ == "__main__":
    main()
