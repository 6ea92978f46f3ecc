"""The demonstration: one small CNN, trained with full data and with a pruning method, side by side.

Both runs start from the same weights. They are trained in turn, an epoch of one and an epoch of the other,
so that a machine that gets slower or faster meanwhile does so for both.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

from ..dataset import InfoBatch
from ..report import Pair, RunRecord, Tick
from ..schedule import paced
from . import fashion

WARM_UP_STEPS = 10
TICK_STEPS = 8


@dataclass(frozen=True)
class Recipe:
    """How both runs are trained. ``ratio`` None leaves it to the method."""

    method: str = "infobatch"
    epochs: int = 16
    ratio: float | None = None
    batch_size: int = 128
    max_lr: float = 0.2
    momentum: float = 0.9
    weight_decay: float = 5e-4


Watch = Callable[[Tick], None]


def prepare(recipe: Recipe, seed: int, data: fashion.Fashion) -> tuple[Run, Run]:
    """A run with full data and one with the recipe's method, which start from the same weights."""
    return Run("full", recipe, seed, data), Run(recipe.method, recipe, seed, data)


def train(full: Run, pruned: Run, watch: Watch = lambda tick: None) -> Pair:
    """Train both, an epoch of one and an epoch of the other."""
    full.warm_up()
    for epoch in range(full.recipe.epochs):
        # Who goes first changes, so that neither always follows the other through the caches.
        for run in (full, pruned) if epoch % 2 == 0 else (pruned, full):
            run.train_epoch(epoch, watch)
    return Pair(full.record(), pruned.record())


def small_cnn(width: int = 16) -> nn.Module:
    """Three convolutions with batch norm: 90 % on the subset in under a minute of two CPU cores."""

    def block(inputs: int, outputs: int, pool: int) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(pool)]

    layers = [*block(1, width, 2), *block(width, 2 * width, 2), *block(2 * width, 4 * width, 7)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * width, len(fashion.CLASSES)))


class Run:
    """One model on its way through training: the loop that a user of the library would write."""

    def __init__(self, method: str, recipe: Recipe, seed: int, data: fashion.Fashion) -> None:
        options: dict[str, Any] = {} if recipe.ratio is None or method == "full" else {"ratio": recipe.ratio}
        self.method, self.recipe, self.seed = method, recipe, seed
        self.test_images, self.test_labels = as_tensors(data.test)
        self.train_data = InfoBatch(
            TensorDataset(*as_tensors(data.train)), recipe.epochs, method=method, seed=seed, **options
        )
        # Given a generator, neither the loader nor the flips touch torch's global random state.
        self.generator = torch.Generator().manual_seed(seed)
        self.loader = DataLoader(
            self.train_data,
            batch_size=recipe.batch_size,
            sampler=self.train_data.sampler,
            generator=self.generator,
        )
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.model = small_cnn()
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=recipe.max_lr,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
            nesterov=True,
        )
        steps = -(-len(data.train) // recipe.batch_size)
        self.scheduler = paced(
            OneCycleLR(self.optimizer, recipe.max_lr, total_steps=recipe.epochs * steps), self.train_data
        )
        self.kept: list[int] = []
        self.losses: list[float] = []
        self.times: list[float] = []

    def warm_up(self) -> None:
        """A few steps of a copy, before any clock runs: the first ones pay for torch's own set-up."""
        model, size = copy.deepcopy(self.model), self.recipe.batch_size
        images = self.test_images[:size].contiguous(memory_format=torch.channels_last)
        for _ in range(WARM_UP_STEPS):
            cross_entropy(model(images), self.test_labels[:size]).backward()  # type: ignore[no-untyped-call]

    def train_epoch(self, epoch: int, watch: Watch) -> None:
        """One pass over the epoch's plan. The clock runs while the plan is made and worked off, not in ``watch``."""
        self.times.append(0.0)
        since = time.perf_counter()
        self.train_data.set_epoch(epoch)
        kept, done, weighted = len(self.train_data.sampler), 0, torch.zeros(())
        self.model.train()
        for step, (images, labels) in enumerate(self.loader):
            losses = cross_entropy(self.model(self.flip(images)), labels, reduction="none")
            loss = self.train_data.update(losses)
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self.scheduler.step()
            done += len(labels)
            weighted += loss.detach() * len(labels)
            if step % TICK_STEPS == 0 or done == kept:
                # Σ weight · loss over the plan estimates Σ loss over all the data: dividing by their number makes
                # the losses of both runs comparable. In the middle of an epoch it is extrapolated.
                mean = weighted.item() / len(self.train_data) * (kept / done)
                self.times[-1] += time.perf_counter() - since
                watch(self.tick(epoch, done, kept, mean))
                since = time.perf_counter()
        self.kept.append(done)
        self.losses.append(weighted.item() / len(self.train_data))
        self.times[-1] += time.perf_counter() - since

    def tick(self, epoch: int, done: int, kept: int, loss: float) -> Tick:
        """Where the run is."""
        total, epochs = len(self.train_data), self.recipe.epochs
        return Tick(self.method, self.seed, epoch, epochs, done, kept, total, loss, sum(self.times))

    def flip(self, images: Tensor) -> Tensor:
        """Mirror each image with probability ½."""
        mirrored = torch.rand(len(images), 1, 1, 1, generator=self.generator) < 0.5
        flipped = torch.where(mirrored, images.flip(3), images)
        return flipped.contiguous(memory_format=torch.channels_last)

    def record(self) -> RunRecord:
        """What is kept of the run; measures the accuracy on the test images."""
        return RunRecord(
            method=self.method,
            seed=self.seed,
            total=len(self.train_data),
            kept=tuple(self.kept),
            losses=tuple(self.losses),
            times=tuple(self.times),
            accuracy=self.accuracy(),
            saving=self.train_data.stats.saving,
            torch=str(torch.__version__),
            cpus=os.cpu_count() or 1,
            scores=tuple(self.train_data.scores.tolist()),
        )

    @torch.inference_mode()
    def accuracy(self) -> float:
        """Share of the test images that the model gets right."""
        self.model.eval()
        guesses = torch.cat([self.model(images).argmax(1) for images in torch.split(self.test_images, 500)])
        return (guesses == self.test_labels).double().mean().item()


def as_tensors(split: fashion.Split) -> tuple[Tensor, Tensor]:
    """Images as floats of mean 0 and standard deviation 1, with a channel axis, and labels as integers."""
    images = (torch.from_numpy(split.images).unsqueeze(1) / 255 - fashion.MEAN) / fashion.STD
    return images, torch.from_numpy(split.labels).long()
