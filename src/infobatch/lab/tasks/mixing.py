"""MixUp, CutMix and Random Erasing with a generator of their own, and the weights of losses of mixed inputs."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ...core.plan import EpochPlan
from ...core.weights import PairWeights, working_dtype

# As in timm: the share of an image that is erased, its proportions, and the attempts to find a rectangle that fits.
_AREA, _ASPECT, _TRIES = (0.02, 1 / 3), (0.3, 1 / 0.3), 10


class Mixed(NamedTuple):
    """Inputs that are sample i with the share λ and sample B-1-i with the rest, and their targets."""

    images: Tensor
    target: Tensor
    share: float


class MixedLosses(NamedTuple):
    """The losses of mixed inputs, the scores of their samples, and λ."""

    losses: Tensor
    score: Tensor
    share: float


def mix(images: Tensor, target: Tensor, mixup: float, cutmix: float, generator: torch.Generator) -> Mixed:
    """Mix a batch with itself in reverse, by one λ from Beta(α, α), as timm does in its mode "batch".

    ``mixup`` and ``cutmix`` are their α, 0 for none; if both are set, one of them is chosen at random. ``target`` is a
    distribution over the classes per sample. In a batch of odd size the sample in the middle stays as it is.
    """
    rng = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
    images, other = images.float(), images.float().flip(0)
    cut = cutmix > 0 and (mixup == 0 or rng.random() < 0.5)
    alpha = cutmix if cut else mixup
    share = float(rng.beta(alpha, alpha))
    if cut:
        height, width = images.shape[2:]
        top, bottom, left, right = _box(height, width, share, rng)
        images = images.clone()
        images[:, :, top:bottom, left:right] = other[:, :, top:bottom, left:right]
        share = 1 - (bottom - top) * (right - left) / (height * width)  # the box may be cut off at the edge
    else:
        images = share * images + (1 - share) * other
    return Mixed(images, share * target + (1 - share) * target.flip(0), share)


def _box(height: int, width: int, share: float, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """A rectangle of 1 - λ of the area around a random point, cut off at the edges: top, bottom, left, right."""
    across = math.sqrt(1 - share)
    ends = []
    for side in (height, width):
        middle, reach = int(rng.integers(side)), int(side * across) // 2
        ends += [max(middle - reach, 0), min(middle + reach, side)]
    top, bottom, left, right = ends
    return top, bottom, left, right


def smooth_labels(labels: Tensor, classes: int, smoothing: float) -> Tensor:
    """Labels as distributions, (1 - s)·one-hot + s/C.

    >>> smooth_labels(torch.tensor([1]), 2, 0.1)
    tensor([[0.0500, 0.9500]])
    """
    return (1 - smoothing) * one_hot(labels, classes).float() + smoothing / classes


def erase(images: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    """Fill a rectangle of each normalised image with noise, with a probability: timm's Random Erasing, "pixel".

    Random numbers are drawn on the CPU, so that they are the same on every device.
    """
    count, channels, height, width = images.shape
    chosen = torch.rand(count, generator=generator) < probability
    images = images.clone()
    for i in chosen.nonzero().flatten().tolist():
        for _ in range(_TRIES):
            area, aspect, y, x = torch.rand(4, generator=generator, dtype=torch.float64).tolist()
            area = height * width * (_AREA[0] + area * (_AREA[1] - _AREA[0]))
            aspect = math.exp(math.log(_ASPECT[0]) + aspect * (math.log(_ASPECT[1]) - math.log(_ASPECT[0])))
            down, across = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if down < height and across < width:
                top, left = int(y * (height - down + 1)), int(x * (width - across + 1))
                noise = torch.randn(channels, down, across, generator=generator)
                images[i, :, top : top + down, left : left + across] = noise.to(images)
                break
    return images


class PairLosses:
    """Weighs the losses of mixed inputs in one epoch, so that the expected step is that of full data.

    ``update`` multiplies input i's loss by the weight of sample i, but the input is a pair with another weight
    (:class:`PairWeights`): losses are multiplied here by the quotient of the two.
    """

    def __init__(self, plan: EpochPlan) -> None:
        self._plan = plan
        self._weights: PairWeights | None = None

    def __call__(self, mixed: MixedLosses, done: int) -> tuple[Tensor, Tensor]:
        """Losses and scores for ``update``, for the batch that follows ``done`` samples of the plan."""
        losses, score, share = mixed
        if self._plan.by_sample.uniform or share == 1:
            return losses, score
        if self._weights is None:
            self._weights = PairWeights(self._plan, losses.device, working_dtype(losses))
        index = torch.from_numpy(self._plan.order[done : done + len(losses)].astype(np.int64)).to(losses.device)
        partner = index.flip(0)
        relative = self._weights.relative(index, partner)
        return losses * torch.where(index == partner, torch.ones_like(relative), relative), score
