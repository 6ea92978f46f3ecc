"""Masked images (MAE): one loss per image, over the patches that the model had to guess.

A model such as ``transformers``' ``ViTMAEForPreTraining`` returns its guess for every patch and the mask; its own loss
is the mean over the hidden patches of the batch. These give the mean of each image instead.
"""

from __future__ import annotations

import torch

_SMALLEST = 1e-6  # added to the variance of a patch: a patch of one colour has none


def reconstruction(predicted: torch.Tensor, target: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean squared error of each image over its hidden patches, in fp32.

    ``predicted`` and ``target`` are (images, patches, values of a patch), ``mask`` is (images, patches), 1 where a
    patch was hidden. Where all images hide equally many patches, as MAE does, the mean over the batch is the model's
    own loss. An image that hides nothing has no loss: 0.

    >>> predicted, target = torch.zeros(2, 3, 4), torch.arange(3.0).view(1, 3, 1).expand(2, 3, 4)
    >>> reconstruction(predicted, target, torch.tensor([[0, 1, 1], [1, 1, 0]]))
    tensor([2.5000, 0.5000])
    """
    if predicted.shape != target.shape or predicted.ndim != 3:
        raise ValueError(
            "predicted and target must be of one shape (images, patches, values of a patch), got "
            f"{tuple(predicted.shape)} and {tuple(target.shape)}; patches(images, size) cuts images into patches"
        )
    if mask.shape != predicted.shape[:2]:
        raise ValueError(
            f"mask must have one entry per patch, 1 where it was hidden: shape {tuple(predicted.shape[:2])}, got "
            f"{tuple(mask.shape)}"
        )
    hidden = mask.to(torch.float32)
    by_patch = (predicted.float() - target.float()).square().mean(-1)
    return (by_patch * hidden).sum(-1) / hidden.sum(-1).clamp(min=1)


def patches(images: torch.Tensor, size: int, *, normalised: bool = False) -> torch.Tensor:
    """Images cut into patches: (images, channels, height, width) to (images, patches, size · size · channels).

    Patches go row by row, the values of a patch too, channels last: MAE's order. ``normalised`` scales each patch to
    mean 0 and variance 1 (``norm_pix_loss``).

    >>> patches(torch.arange(16.0).view(1, 1, 4, 4), 2)[0, 1]
    tensor([2., 3., 6., 7.])
    """
    count, channels, height, width = images.shape
    if height % size or width % size:
        raise ValueError(
            f"size must divide the images' height and width, got size {size} for images of {height} × {width}"
        )
    cut = images.reshape(count, channels, height // size, size, width // size, size)
    rows = cut.permute(0, 2, 4, 3, 5, 1).reshape(count, -1, size * size * channels)
    if not normalised:
        return rows
    variance, mean = torch.var_mean(rows, -1, keepdim=True)
    return (rows - mean) / (variance + _SMALLEST).sqrt()
