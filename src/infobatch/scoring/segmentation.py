"""Segmentation: one loss per image, from a loss per pixel.

Logits are (images, classes, height, width), a target is a class per pixel, (images, height, width). Pixels of the
class ``ignore_index`` are not labelled and do not count; an image without a labelled pixel has the loss 0 and no
gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional

IGNORED = 255
AUXILIARY_WEIGHT = 0.4  # the authors', who took it from mmsegmentation


class ImageLosses(NamedTuple):
    """For each image the sum of its labelled pixels' losses, and how many there are."""

    total: torch.Tensor
    pixels: torch.Tensor

    @property
    def mean(self) -> torch.Tensor:
        """The mean over an image's labelled pixels, to train on and to use as its score."""
        return self.total / self.pixels.clamp(min=1)

    @property
    def pooled(self) -> torch.Tensor:
        """Losses whose mean over the batch is the mean over all its labelled pixels, as in torch's own criterion.

        The more of an image is labelled, the more it counts. Use ``mean`` as the score.
        """
        return self.total * (len(self.total) / self.pixels.sum().clamp(min=1))


def image_losses(logits: torch.Tensor, target: torch.Tensor, *, ignore_index: int = IGNORED) -> ImageLosses:
    """Cross-entropy of each image, in fp32.

    >>> logits, target = torch.zeros(2, 4, 1, 3), torch.tensor([[[0, 1, 255]], [[255, 255, 255]]])
    >>> losses = image_losses(logits, target)
    >>> losses.pixels, losses.mean
    (tensor([2., 0.]), tensor([1.3863, 0.0000]))
    """
    images, _, *size = logits.shape
    if target.shape != (images, *size):
        raise ValueError(
            f"target must be a class per pixel of the logits, of shape {(images, *size)}, got {tuple(target.shape)}: "
            'bring the logits to its size with torch.nn.functional.interpolate(..., mode="bilinear")'
        )
    target = target.long()
    losses = functional.cross_entropy(logits.float(), target, ignore_index=ignore_index, reduction="none")
    return ImageLosses(losses.flatten(1).sum(1), target.ne(ignore_index).flatten(1).sum(1).float())


def with_auxiliary(
    logits: torch.Tensor,
    auxiliary: torch.Tensor,
    target: torch.Tensor,
    *,
    weight: float = AUXILIARY_WEIGHT,
    ignore_index: int = IGNORED,
) -> torch.Tensor:
    """The pixel mean of each image plus ``weight`` times the auxiliary head's: its loss and its score (appendix A.1).

    >>> logits, target = torch.zeros(1, 4, 2, 2), torch.zeros(1, 2, 2, dtype=torch.long)
    >>> with_auxiliary(logits, logits, target)  # 1.4 · log 4
    tensor([1.9408])
    """
    decoded, early = (image_losses(each, target, ignore_index=ignore_index).mean for each in (logits, auxiliary))
    return decoded + weight * early
