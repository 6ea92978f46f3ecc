"""Model outputs → one loss and one score per sample. Pure functions of tensors; a module per kind of task."""

from . import classification, language

__all__ = ["classification", "language"]
