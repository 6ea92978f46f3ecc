"""Model outputs → one loss and one score per sample. Pure functions of tensors; a module per kind of task."""

from . import classification, detection, diffusion, language, masked, segmentation

__all__ = ["classification", "detection", "diffusion", "language", "masked", "segmentation"]
