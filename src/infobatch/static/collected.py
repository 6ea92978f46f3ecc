"""The arrays that static selection works on: plain, optional, checked once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .scores import errors

HOW = {
    "features": "static.collect(model, loader) gathers them",
    "logits": "static.collect(model, loader) gathers them",
    "labels": "static.collect(model, loader) gathers them",
    "correct": "keep a static.Dynamics while training, then Collected(correct=dynamics.correct)",
    "distances": "static.collect(model, loader, deepfool=True) measures them",
}


@dataclass(frozen=True, eq=False)
class Collected:
    """A model's outputs for each sample; ``static.info(name).needs`` lists the arrays that a method needs.

    Args:
        features: (samples, dimensions), the inputs of the last layer.
        logits: (samples, classes), the outputs of the last layer.
        labels: a class per sample, 0, 1, …
        correct: (times, samples), whether the sample was classified correctly at that time of training; -1: not seen.
        distances: how far each input is from the decision boundary (DeepFool); may be infinite.
        bias: whether the last layer has a bias, which is part of its gradient.
    """

    features: NDArray[Any] | None = None
    logits: NDArray[Any] | None = None
    labels: NDArray[Any] | None = None
    correct: NDArray[Any] | None = None
    distances: NDArray[Any] | None = None
    bias: bool = True

    def __post_init__(self) -> None:
        sizes: dict[str, int] = {}
        for name, array in self._arrays():
            array = np.asarray(array)
            object.__setattr__(self, name, array)
            axes = 1 if name in ("labels", "distances") else 2
            if array.ndim != axes:
                raise ValueError(f"{name} must have {axes} axes, got the shape {array.shape}")
            if name == "labels" and not np.issubdtype(array.dtype, np.integer):
                raise TypeError(f"labels must be whole numbers, one class per sample, got {array.dtype}")
            usable = ~np.isnan(array) if name == "distances" else np.isfinite(array)
            if not usable.all():
                sample = int(np.argwhere(~usable)[0][0])
                raise ValueError(f"{name} must be finite, but are not for sample {sample}: check the model's outputs")
            sizes[name] = array.shape[-1] if name == "correct" else len(array)
        if len(set(sizes.values())) != 1:
            raise ValueError(f"every array must have a row per sample, got {sizes or 'no array'}")
        if self.logits is not None and self.labels is not None and len(self):
            low, high = int(self.labels.min()), int(self.labels.max())
            if low < 0 or high >= self.logits.shape[1]:
                raise ValueError(
                    f"labels must lie in 0..{self.logits.shape[1] - 1}, as there are {self.logits.shape[1]} logits; "
                    f"got {low}..{high}"
                )

    def __len__(self) -> int:
        for name, array in self._arrays():
            return int(array.shape[-1] if name == "correct" else len(array))
        raise AssertionError("checked when made")

    def _arrays(self) -> Iterator[tuple[str, NDArray[Any]]]:
        return ((name, getattr(self, name)) for name in HOW if getattr(self, name) is not None)

    def need(self, name: str, method: str) -> NDArray[Any]:
        """An array, or an error that says which method needs it and how to get it."""
        array: NDArray[Any] | None = getattr(self, name)
        if array is None:
            raise ValueError(f"{method} needs {name}: {HOW[name]}")
        return array

    def errors(self, method: str) -> NDArray[Any]:
        """Probability - one-hot label for each sample: the gradient of the loss in the logits."""
        return errors(self.need("logits", method), self.need("labels", method))

    def take(self, rows: NDArray[np.int64]) -> Collected:
        """The given samples."""
        parts = {name: array[..., rows] if name == "correct" else array[rows] for name, array in self._arrays()}
        return Collected(**parts, bias=self.bias)

    def save(self, path: str | Path) -> None:
        """Write the arrays as an ``.npz`` file."""
        with Path(path).open("wb") as file:
            np.savez(file, allow_pickle=False, bias=np.array(self.bias), **dict(self._arrays()))

    @classmethod
    def load(cls, path: str | Path) -> Collected:
        """Read what ``save`` wrote."""
        known = {field.name for field in fields(cls)}
        with np.load(path) as arrays:
            if "bias" not in arrays or set(arrays) - known:
                raise ValueError(f"{path} is not a file of collected arrays: it holds {sorted(arrays)}")
            return cls(**{name: arrays[name] for name in arrays if name != "bias"}, bias=bool(arrays["bias"]))
