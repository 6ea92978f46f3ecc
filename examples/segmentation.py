"""Segmentation: one loss per image from two heads; pixels, and whole images, that nobody has labelled.

    python examples/segmentation.py --epochs 12

Nothing to download: pictures of discs and squares are made here, with their edges, and some whole pictures, unlabelled.
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torch.utils.data import DataLoader, TensorDataset

import infobatch
from infobatch.scoring.segmentation import IGNORED, with_auxiliary

CLASSES, SIZE = 3, 32  # ground, disc, square


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=8)
    options = parser.parse_args()

    torch.manual_seed(0)
    train_data = infobatch.InfoBatch(
        TensorDataset(*pictures(options.images)), options.epochs, method="infobatch-quantile", delta=0.85
    )
    loader = DataLoader(train_data, options.batch_size, sampler=train_data.sampler)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    # A schedule counted in iterations of full training: paced() goes through all of it in the fewer that are made.
    iterations = options.epochs * -(-options.images // options.batch_size)
    poly = torch.optim.lr_scheduler.PolynomialLR(optimizer, iterations, power=0.9)
    scheduler, made = infobatch.paced(poly, train_data), 0

    for _ in range(options.epochs):
        for images, labels in loader:
            decoded, auxiliary = model(images)
            loss = train_data.update(with_auxiliary(decoded, auxiliary, labels, weight=0.4))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            made += 1

    print(train_data.summary())
    print(f"{made} iterations instead of {iterations}")
    print(f"mean IoU {100 * mean_iou(model.eval(), *pictures(50)):.1f} %")


class Network(nn.Module):
    """A small encoder with a head on its last features, and an auxiliary one on those before."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.early = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU())
        self.late = nn.Sequential(nn.Conv2d(width, width, 5, 1, 2), nn.BatchNorm2d(width), nn.ReLU())
        self.auxiliary, self.head = (nn.Conv2d(width, CLASSES, 3, 1, 1) for _ in range(2))

    def forward(self, images: Tensor) -> list[Tensor]:
        early = self.early(images)
        found = self.head(self.late(early)), self.auxiliary(early)
        return [interpolate(logits, images.shape[2:], mode="bilinear") for logits in found]


def pictures(count: int) -> tuple[Tensor, Tensor]:
    """Noisy pictures of one disc or square each, and the class of every pixel."""
    kind, x, y = torch.randint(0, 2, (count,)), *torch.randint(8, SIZE - 8, (2, count))
    rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    across, down = (columns - x.view(-1, 1, 1)).abs(), (rows - y.view(-1, 1, 1)).abs()
    disc = kind.view(-1, 1, 1) == 0
    distance = torch.where(disc, (across**2 + down**2).sqrt(), torch.maximum(across, down).float())
    labels = torch.where(distance < 7, torch.where(disc, 1, 2), 0)
    labels[(distance - 7).abs() < 0.5] = IGNORED
    labels[:: count // 4] = IGNORED
    return (distance < 7).float().unsqueeze(1) + 0.5 * torch.randn(count, 3, SIZE, SIZE), labels


@torch.inference_mode()
def mean_iou(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    guesses, known = model(images)[0].argmax(1), labels != IGNORED
    mine, true = ([(each == kind) & known for kind in range(CLASSES)] for each in (guesses, labels))
    shares = [(a & b).sum() / (a | b).sum() for a, b in zip(mine, true, strict=True)]
    return float(torch.stack(shares).mean())


if __name__ == "__main__":
    main()
