"""Checks of users' arguments: each error names the argument, the rule, the value and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sized
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset


def is_real(value: Any) -> bool:
    """Whether ``value`` is a real number of Python or numpy, and not a bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a message about a wrong name: the nearest right one, and all of them.

    >>> nearest("rato", ["ratio", "delta"])
    "; did you mean 'ratio'? Known: ratio, delta"
    """
    known = [*known]
    if not known:
        return "; it has none"
    close = difflib.get_close_matches(word, known, n=1)
    return f"{f'; did you mean {close[0]!r}?' if close else '.'} Known: {', '.join(known)}"


def check_choice(what: str, value: str, known: Iterable[str]) -> None:
    """Raise, naming the nearest known word, unless ``value`` is one of the known words."""
    known = [*known]
    if value not in known:
        raise ValueError(f"{what}: there is no {value!r}{nearest(value, known)}")


# -- arguments --------------------------------------------------------------------------------------------------------


def check_dataset(dataset: Any) -> None:
    """Raise unless the dataset is map-style and has at least one sample."""
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__getitem__") and isinstance(dataset, Sized)):
        raise TypeError(
            f"dataset must be map-style, with __len__ and __getitem__, got {type(dataset).__name__}: a stream has no "
            "sample to come back to. Use a map-style torch.utils.data.Dataset (for Hugging Face data: a "
            "datasets.Dataset, not an IterableDataset), or infobatch.Stream for a stream (with Trainer: StreamTrainer "
            "of infobatch.integrations.streaming)"
        )
    if len(dataset) == 0:
        raise ValueError("dataset is empty: it must hold at least one sample")


def check_whole(name: str, value: Any, least: int, meaning: str) -> None:
    """Raise unless ``value`` is a whole number, not below ``least``."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be a whole number ({meaning}), got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least} ({meaning}), got {value}")


def check_share(name: str, value: Any, meaning: str) -> None:
    """Raise unless ``value`` is a number in [0, 1]."""
    if not is_real(value) or not 0 <= value <= 1:
        raise ValueError(f"{name} must lie in [0, 1] ({meaning}), got {value!r}")


def check_flag(name: str, value: Any, meaning: str) -> None:
    """Raise unless ``value`` is True, False or None; None means "as the method does"."""
    if value is not None and not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True, False or None ({meaning}), got {value!r}")


def checked_ratio(ratio: float, name: str = "ratio", meaning: str = "the share of low-score samples to prune") -> float:
    """``ratio`` as a float in [0, 1), or a ValueError that says what is wrong."""
    if not is_real(ratio) or not 0 <= ratio < 1:
        hint = ": the paper uses 0.5; 0 prunes nothing" if name == "ratio" else ""
        raise ValueError(f"{name} must lie in [0, 1), {meaning}, got {ratio!r}{hint}")
    return float(ratio)


def checked_part(name: str, value: float, meaning: str, above: float = 0.0) -> float:
    """``value`` as a float in (``above``, 1], or a ValueError that says what is wrong."""
    if not is_real(value) or not above < value <= 1:
        raise ValueError(f"{name} must lie in ({above:g}, 1] ({meaning}), got {value!r}")
    return float(value)


# -- the step ---------------------------------------------------------------------------------------------------------


def check_loss(name: str, loss: torch.Tensor, like: torch.Tensor | None = None) -> None:
    """Raise unless ``loss`` has one floating-point value per sample, and as many as ``like``."""
    if not isinstance(loss, torch.Tensor) or not loss.is_floating_point():
        kind = loss.dtype if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise TypeError(f"{name} must be a floating-point tensor with one value per sample, got {kind}")
    if loss.dim() == 0:
        raise ValueError(
            f'{name} is a scalar, but one value per sample is needed: make the criterion with reduction="none"'
        )
    if loss.dim() != 1:
        raise ValueError(
            f"{name} must have one value per sample, got shape {tuple(loss.shape)}: "
            f"average the other dimensions first, e.g. {name}.flatten(1).mean(1)"
        )
    if like is not None and loss.shape != like.shape:
        raise ValueError(f"{name} has {loss.shape[0]} values for {like.shape[0]} losses: it needs one per sample")


def checked_index(value: Any, size: int, loss: torch.Tensor | None = None) -> torch.Tensor:
    """The index as a tensor, or an error unless it names samples of a dataset of ``size``, one per value of ``loss``.

    On an accelerator the range is not checked here, to spare a sync: the device raises its own errors.
    """
    index = value
    if not isinstance(index, torch.Tensor):
        try:
            index = torch.as_tensor(value, device="cpu")
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"index must hold whole numbers, one per sample, got {value!r}: {error}") from error
        if index.numel() == 0:
            index = index.to(torch.int64)
    if index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
        raise TypeError(
            f"index must hold whole numbers, got {index.dtype}: floats cannot name large indices exactly; "
            "keep it an integer tensor"
        )
    if loss is not None:
        if index.shape != loss.shape:
            raise ValueError(
                f"index must name one sample per loss value: got shape {tuple(index.shape)} for {loss.shape[0]} losses"
            )
        if loss.shape[0] == 0:
            raise ValueError("loss must hold at least one value, one per sample; got 0")
    if index.device.type == "cpu" and index.numel() and not (int(index.min()) >= 0 and int(index.max()) < size):
        wrong = index[(index < 0) | (index >= size)].flatten()[0]
        raise IndexError(f"index {int(wrong)} is outside the dataset of {size} samples (0..{size - 1})")
    return index
