"""Losses that are not one per sample: contrastive, of pairs, or one number per batch.

    python examples/contrastive.py                  # one loss per anchor, the others of the batch are its negatives
    python examples/contrastive.py --loss pairs     # one loss per pair of samples
    python examples/contrastive.py --loss scalar    # nothing but the batch's mean

A small network learns to place pictures of Fashion-MNIST so that alike ones lie together; it is judged by the class of
each test picture's nearest training picture. What is unbiased in each way: docs/batch-losses.md.
"""

import argparse

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from infobatch import InfoBatch, PairWeights
from infobatch.lab.data import fashion
from infobatch.lab.tasks.images import augmented
from infobatch.lab.tasks.models import small_cnn

TEMPERATURE = 0.2
MARGIN = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loss", choices=["anchors", "pairs", "scalar"], default="anchors")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=5_000)
    options = parser.parse_args()

    data = fashion.load()
    pixels, labels = torch.from_numpy(data.train.images)[:, None], torch.from_numpy(data.train.labels).long()
    pixels, labels = pixels[: options.samples], labels[: options.samples]
    torch.manual_seed(0)
    chance = torch.Generator().manual_seed(0)
    model = small_cnn(32, 1, 28)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    method = "bls" if options.loss == "scalar" else "infobatch"
    # The batches say which samples they hold: pair weights are looked up by index.
    train_data = InfoBatch(TensorDataset(pixels, labels), options.epochs, method=method, index_key="index")
    loader = DataLoader(train_data, batch_size=128, sampler=train_data.sampler)
    for epoch in range(options.epochs):
        train_data.set_epoch(epoch)
        pairs = PairWeights(train_data.plan, torch.device("cpu"))  # of this epoch
        for images, label, index in loader:
            first, second = (embed(model, augmented(images, "crop-flip", chance)) for _ in range(2))
            if options.loss == "anchors":
                losses = anchor_losses(first, second, negatives=pairs.relative(index[:, None], index))
                loss = train_data.update(losses, index)
            elif options.loss == "pairs":
                each = pair_losses(first, second, label)
                weight = train_data.weights_of(index).float()[:, None] * pairs.relative(index[:, None], index)
                loss = mean_of_pairs(each * weight)
                train_data.update(scores_of(each), index)  # books the scores; the weighted loss is ours
            else:
                losses = anchor_losses(first, second, negatives=torch.ones(len(index), len(index)))
                loss = train_data.update(losses.mean(), index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(train_data.summary())
    print(f"nearest neighbour's class is right: {neighbours(model, pixels, labels, data.test):.1%}")


def embed(model: nn.Module, images: Tensor) -> Tensor:
    return nn.functional.normalize(model((images / 255 - fashion.MEAN) / fashion.STD), dim=1)


def anchor_losses(first: Tensor, second: Tensor, negatives: Tensor) -> Tensor:
    """InfoNCE of each anchor: -log of its partner's share of all; the others count as ``negatives`` [i, j] says."""
    alike = first @ second.T / TEMPERATURE
    others = alike + negatives.log().fill_diagonal_(0)  # its partner was not drawn, it is always there
    return others.logsumexp(1) - alike.diagonal()


def pair_losses(first: Tensor, second: Tensor, label: Tensor) -> Tensor:
    """[i, j]: samples of one class should point the same way, those of two at least ``MARGIN`` apart."""
    alike = first @ second.T
    return torch.where(label[:, None] == label, 1 - alike, (alike - MARGIN).clamp(min=0))


def mean_of_pairs(each: Tensor) -> Tensor:
    """Over the ordered pairs of different samples."""
    count = len(each)
    return (each.sum() - each.diagonal().sum()) / max(count * (count - 1), 1)


def scores_of(each: Tensor) -> Tensor:
    """What a sample has to do with the loss: the mean of its pairs."""
    return (each.detach() + each.detach().T).mean(1) / 2


@torch.no_grad()
def neighbours(model: nn.Module, pixels: Tensor, labels: Tensor, test: fashion.Split) -> float:
    model.eval()
    known = torch.cat([embed(model, part) for part in pixels.split(500)])
    asked = torch.cat([embed(model, part) for part in torch.from_numpy(test.images)[:, None].split(500)])
    return float(np.mean(labels[(asked @ known.T).argmax(1)].numpy() == test.labels))


if __name__ == "__main__":
    main()
