"""Train on labels of which a tenth is wrong, and keep every sample's score after every epoch.

python train.py DATA OUT [--samples 12000] [--epochs 10] [--seeds 0 1 2 3] [--noise mixed weak]
                [--parts full infobatch infobatch-adaptive cross-validated]

DATA holds the original files of Fashion-MNIST. For each kind of noise and each seed OUT gets one .npz per method, with
the labels, which of them are wrong, and the scores after each epoch (NaN where a sample was left out); and one with the
probabilities of a 3-fold cross-validation with the same net. A file that is there already is not made again.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import infobatch
from infobatch.lab.data import fashion

METHODS = ("full", "infobatch", "infobatch-adaptive")
WRONG = 0.10  # the share of labels that are wrong
FOLDS = 3


def net() -> nn.Module:
    """A small convolutional net."""
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(16 * 49, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


def train(images: torch.Tensor, labels: torch.Tensor, epochs: int, seed: int, method: str = "full"):
    """(the model, scores after each epoch: NaN where a sample was left out)."""
    torch.manual_seed(seed)
    model = net()
    data = infobatch.InfoBatch(TensorDataset(images, labels), epochs, method=method, seed=seed)
    loader = DataLoader(data, batch_sampler=data.batches(128))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    steps = epochs * -(-len(labels) // 128)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.1, total_steps=steps, pct_start=0.2)
    criterion = nn.CrossEntropyLoss(reduction="none")
    history = np.full((epochs, len(labels)), np.nan, np.float32)
    for epoch in range(epochs):
        data.set_epoch(epoch)
        for x, y in loader:
            optimiser.zero_grad()
            data.update(criterion(model(x), y)).backward()
            optimiser.step()
            schedule.step()
        trained = data.plan.indices
        history[epoch, trained] = data.scores[trained]
    return model.eval(), history, data.stats.saving


@torch.no_grad()
def probabilities(model: nn.Module, images: torch.Tensor) -> np.ndarray:
    """Softmax of the model's outputs."""
    return torch.cat([model(part).softmax(1) for part in images.split(1000)]).numpy()


def cross_validated(images: torch.Tensor, labels: torch.Tensor, epochs: int, seed: int) -> np.ndarray:
    """Each sample's probabilities by a model that was not trained on it."""
    fold = np.random.default_rng((seed, 7)).permutation(len(labels)) % FOLDS
    result = np.zeros((len(labels), 10), np.float32)
    for number in range(FOLDS):
        inside, outside = torch.from_numpy(fold != number), torch.from_numpy(fold == number)
        model, _, _ = train(images[inside], labels[inside], epochs, seed)
        result[fold == number] = probabilities(model, images[outside])
    return result


def wrong_labels(kind: str, labels: np.ndarray, guesses: np.ndarray, confused: np.ndarray, seed: int) -> np.ndarray:
    """The labels with a tenth of them wrong.

    ``mixed``: half of the wrong ones are drawn at random, half are the class that theirs is most confused with.
    ``weak``: the wrong ones are the mistakes of a linear model, as of a labeller in a hurry.
    """
    chance = np.random.default_rng((seed, 3))
    count = int(WRONG * len(labels))
    result = labels.copy()
    if kind == "weak":
        mistakes = np.flatnonzero(guesses != labels)
        chosen = chance.choice(mistakes, min(count, len(mistakes)), replace=False)
        result[chosen] = guesses[chosen]
        return result
    chosen = chance.choice(len(labels), count, replace=False)
    at_random, to_confused = chosen[: count // 2], chosen[count // 2 :]
    result[at_random] = (labels[at_random] + chance.integers(1, 10, len(at_random))) % 10
    result[to_confused] = confused[labels[to_confused]]
    return result


def linear_model(images: torch.Tensor, labels: torch.Tensor) -> nn.Module:
    """Softmax regression, trained a little."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    for x, y in DataLoader(TensorDataset(images, labels), 100, shuffle=True):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    return model.eval()


def main() -> None:
    """Train what is asked for and not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--samples", type=int, default=12_000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--noise", nargs="+", default=["mixed", "weak"])
    parser.add_argument("--parts", nargs="+", default=[*METHODS, "cross-validated"])
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    split = fashion.load_original(arguments.data).train
    images = torch.from_numpy((split.images / 255.0 - fashion.MEAN) / fashion.STD).float().unsqueeze(1)
    truth = split.labels.astype(np.int64)
    aside = slice(-10_000, None)  # never trained on by the nets: to tell which classes are alike
    linear = linear_model(images[aside], torch.from_numpy(truth[aside]))
    guesses = probabilities(linear, images).argmax(1)
    mistakes = np.zeros((10, 10), int)
    np.add.at(mistakes, (truth[aside], guesses[aside]), 1)
    np.fill_diagonal(mistakes, 0)
    wanted = [(kind, seed, part) for kind in arguments.noise for seed in arguments.seeds for part in arguments.parts]
    for kind, seed, part in wanted:
        path = arguments.out / f"{kind}-{seed}-{part}.npz"
        if path.exists():
            continue
        rows = np.random.default_rng((seed, 1)).choice(len(truth) - 10_000, arguments.samples, replace=False)
        labels = wrong_labels(kind, truth[rows], guesses[rows], mistakes.argmax(1), seed)
        x, y = images[rows], torch.from_numpy(labels)
        record = {"labels": labels, "wrong": labels != truth[rows]}
        if part == "cross-validated":
            record["probabilities"] = cross_validated(x, y, arguments.epochs, seed)
        else:
            _, record["scores"], record["saving"] = train(x, y, arguments.epochs, seed, part)
        np.savez_compressed(path, **record)
        print(path.name, f"{time.process_time():.0f} s", flush=True)


if __name__ == "__main__":
    main()
