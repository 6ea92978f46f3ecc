"""Draws forecast.png: what each method would save on 6,000 pictures of clothes, after two epochs of 20.

python docs/pictures/forecast.py
"""

from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import infobatch
from infobatch.lab.data import fashion

EPOCHS, SAMPLES = 20, 6_000


def main() -> None:
    """Train for two epochs, draw the forecast."""
    split = fashion.load().train.head(SAMPLES)
    images = (torch.from_numpy(split.images).float() / 255 - fashion.MEAN) / fashion.STD
    train_data = infobatch.InfoBatch(TensorDataset(images, torch.from_numpy(split.labels).long()), EPOCHS)
    loader = DataLoader(train_data, batch_size=64, sampler=train_data.sampler)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    criterion = nn.CrossEntropyLoss(reduction="none")
    for _ in range(2):
        for x, y in loader:
            loss = train_data.update(criterion(model(x), y))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    train_data.forecast().draw(Path(__file__).with_suffix(".png"))


if __name__ == "__main__":
    main()
