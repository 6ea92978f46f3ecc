"""Lightning Fabric: your own loop, and a checkpoint every few steps that it goes on from bit for bit.

    python examples/fabric.py                  # stop it, start it again: it goes on, also in mid-epoch
    python examples/fabric.py --devices 2      # two processes, DDP

``train_data`` goes into the state like the model. ``epochs`` is ``range(num_epochs)``, less what is done already.
"""

import argparse
from pathlib import Path

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import infobatch
from infobatch.integrations.lightning import epochs
from infobatch.lab.data import fashion


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--batch-size", type=int, default=64, help="per process")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("fabric"), help="of the checkpoint")
    parser.add_argument("--every", type=int, default=20, help="steps between checkpoints")
    options = parser.parse_args()

    fabric = Fabric(devices=options.devices)
    fabric.launch()
    torch.manual_seed(0)
    data = fashion.load()
    train_data = infobatch.InfoBatch(as_dataset(data.train.head(options.samples)), options.epochs)  # 1
    loader = DataLoader(train_data, options.batch_size, sampler=train_data.sampler)  # 2
    loader = fabric.setup_dataloaders(loader)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    criterion = nn.CrossEntropyLoss(reduction="none")

    state = {"model": model, "optimizer": optimizer, "train_data": train_data, "step": 0}
    last = options.folder / "last.ckpt"
    if last.exists():
        fabric.load(last, state)
        fabric.print(f"goes on after step {state['step']}, in epoch {train_data.epoch}")

    for _ in epochs(train_data, loader):  # 4
        for x, y in loader:
            loss = train_data.update(criterion(model(x), y))  # 3
            optimizer.zero_grad()
            fabric.backward(loss)
            optimizer.step()
            state["step"] += 1
            if state["step"] % options.every == 0:
                fabric.save(last, state)  # on every rank: scores are gathered

    x, y = fabric.to_device(as_dataset(data.test).tensors)
    with torch.no_grad():
        accuracy = (model(x).argmax(1) == y).float().mean().item()
    fabric.print(train_data.summary())
    fabric.print(f"test accuracy {accuracy:.1%} after {state['step']} steps, with {fabric.world_size} processes")


def as_dataset(split: fashion.Split) -> TensorDataset:
    images = torch.from_numpy(split.images).float() / 255
    return TensorDataset((images - fashion.MEAN) / fashion.STD, torch.from_numpy(split.labels).long())


if __name__ == "__main__":
    main()
