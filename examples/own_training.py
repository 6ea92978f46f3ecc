"""A training function of your own, compared over methods and seeds; plain PyTorch.

    infobatch compare examples/own_training.py:train --methods full,infobatch,infobatch-adaptive:steps=stay --seeds 5
    python examples/own_training.py    # the same from Python

Each run is a process of its own. One that was killed goes on from the checkpoint in its folder.
"""

import torch
from torch import nn
from torch.nn import functional

import infobatch
from infobatch.lab.data import fashion

EPOCHS, SAMPLES, BATCH_SIZE = 6, 4_000, 64


def train(trial: infobatch.Trial) -> dict[str, float]:
    """Train a small network on pictures of clothes, and return what it is judged by."""
    data = fashion.load()
    x, y = as_tensors(data.train.head(SAMPLES))
    train_data = trial.prune(torch.utils.data.TensorDataset(x, y), EPOCHS)  # 1: pruned as this run's method says
    loader = trial.loader(train_data, BATCH_SIZE)  # 2

    torch.manual_seed(trial.seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    parts = {"model": model, "optimizer": optimizer, "train_data": train_data}
    path = trial.folder / "last.pt"
    if path.exists():  # killed before: go on
        for name, state in infobatch.checkpoint.load(path).items():
            parts[name].load_state_dict(state)

    for _ in range(train_data.epoch, train_data.num_epochs):  # 3: shortened schedules have fewer
        for images, labels in loader:
            loss = train_data.update(functional.cross_entropy(model(images), labels, reduction="none"))  # 4
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        infobatch.checkpoint.save({name: part.state_dict() for name, part in parts.items()}, path)

    x, y = as_tensors(data.test)
    with torch.no_grad():
        logits = model(x)
    return {
        "accuracy": 100 * float((logits.argmax(1) == y).float().mean()),
        "loss": float(functional.cross_entropy(logits, y)),
    }


def as_tensors(split: fashion.Split) -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.from_numpy(split.images).float() / 255
    return (images - fashion.MEAN) / fashion.STD, torch.from_numpy(split.labels).long()


if __name__ == "__main__":
    infobatch.compare(train, methods=["full", "infobatch"], seeds=3, metric="accuracy", lower=["loss"])
