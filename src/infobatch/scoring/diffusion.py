"""Diffusion models: one loss per sample, and a score that does not depend on how noisy the sample happened to be.

Noise is hard to predict in an almost clean input, and easy where there is hardly anything else: a loss depends on the
sample and on the timestep it drew. Divided by the usual loss at that timestep, it says more about the sample.
"""

from __future__ import annotations

import torch
from torch import nn


def noise_prediction(predicted: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The mean squared error of each sample over all its values (all dimensions after the first), in fp32.

    ``target`` is what the model learns to predict: the noise, the velocity, or the clean sample.

    >>> noise_prediction(torch.zeros(2, 1, 2, 2), torch.tensor([1.0, 3.0]).view(2, 1, 1, 1).expand(2, 1, 2, 2))
    tensor([1., 9.])
    """
    if predicted.shape != target.shape or predicted.ndim < 2:
        raise ValueError(
            "predicted and target must be of one shape, samples first, then their values, got "
            f"{tuple(predicted.shape)} and {tuple(target.shape)}"
        )
    return (predicted.float() - target.float()).square().flatten(1).mean(1)


def relative(loss: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Each loss divided by the loss expected at its timestep: above 1 is harder than usual. Detached: only a score.

    >>> relative(torch.tensor([0.9, 0.1]), torch.tensor([0.6, 0.1]))
    tensor([1.5000, 1.0000])
    """
    return loss.detach() / expected.clamp(min=torch.finfo(expected.dtype).tiny)


class ExpectedLoss(nn.Module):
    """The usual loss at a timestep: a mean over the recent losses of its bucket of timesteps.

    Bucket b holds the timesteps t with ⌊t · buckets / timesteps⌋ = b. Each batch counts ``memory`` times as much as the
    next, so that the mean follows the model as it learns. Timesteps are drawn independently of the sample, so pruning
    changes the usual loss in all buckets alike, and the order of the scores hardly.

    It is a module without parameters, so that its state can be saved as part of the model's.

    >>> usual = ExpectedLoss(timesteps=1000, buckets=2)
    >>> usual.book(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([3, 20, 900]))
    >>> usual(torch.tensor([400, 500]))
    tensor([0.7000, 0.1000])
    """

    total: torch.Tensor
    weight: torch.Tensor

    def __init__(self, timesteps: int = 1000, buckets: int = 20, memory: float = 0.99) -> None:
        super().__init__()
        if not 1 <= buckets <= timesteps:
            raise ValueError(f"buckets must be from 1 to the number of timesteps, {timesteps}, got {buckets}")
        if not 0 <= memory <= 1:
            raise ValueError(f"memory must be from 0, the last batch alone, to 1, all batches alike, got {memory}")
        self.timesteps, self.memory = timesteps, memory
        self.register_buffer("total", torch.zeros(buckets))
        self.register_buffer("weight", torch.zeros(buckets))

    @torch.no_grad()
    def book(self, loss: torch.Tensor, timestep: torch.Tensor) -> None:
        """Add the losses of a batch to the means. Losses that are not finite are left out."""
        loss, bucket = loss.float(), self._bucket(timestep)
        finite = loss.isfinite().float()
        self.total.mul_(self.memory).index_add_(0, bucket, torch.where(finite > 0, loss, 0.0))
        self.weight.mul_(self.memory).index_add_(0, bucket, finite)

    def forward(self, timestep: torch.Tensor) -> torch.Tensor:
        """The usual loss at each of these timesteps; NaN where none has been seen."""
        bucket = self._bucket(timestep)
        return self.total[bucket] / self.weight[bucket]

    def _bucket(self, timestep: torch.Tensor) -> torch.Tensor:
        return timestep.long() * len(self.total) // self.timesteps
