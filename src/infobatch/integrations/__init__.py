"""One file per framework, the only place that imports it: ``from infobatch.integrations.lightning import …``."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..core.checks import check_flag
from ..dataset import InfoBatch

FRAMEWORKS = (
    *("accelerate", "fastai", "keras", "lightning", "logging", "ray", "streaming", "timm", "transformers"),
    "ultralytics",
)


def __getattr__(name: str) -> Any:
    """``infobatch.integrations.lightning`` and the like, imported when they are first asked for."""
    if name in FRAMEWORKS:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def sampler_of(loader: Any) -> Any:
    """What a loader takes its indices from, in batches or one by one; None where it has no such thing."""
    return getattr(getattr(loader, "batch_sampler", None), "sampler", getattr(loader, "sampler", None))


def batching(train_data: InfoBatch, batch_size: int, drop_last: bool, keep_steps: bool) -> dict[str, Any]:
    """The arguments by which torch's DataLoader takes its batches from ``train_data``."""
    check_flag("keep_steps", keep_steps, "whether every epoch has as many batches as full data, and they shrink")
    if keep_steps:
        return {"batch_sampler": train_data.batches(batch_size, drop_last)}
    return {"batch_size": batch_size, "sampler": train_data.sampler, "drop_last": drop_last}


def torch_seed() -> int | None:
    """The seed that a framework's function (``set_seed``, ``random_seed``) gave to torch; None if nobody seeded it.

    Such functions seed numpy as well, which takes no seed of more than 32 bits. Torch itself starts from 64 random
    ones.
    """
    seed = torch.initial_seed()
    return seed if seed < 1 << 32 else None


@contextmanager
def needs(package: str, extra: str) -> Iterator[None]:
    """Say what to install where importing ``package`` fails because it is not there.

    >>> with needs("no_such_framework", "lightning"):
    ...     import no_such_framework
    Traceback (most recent call last):
    ...
    ImportError: this integration needs no_such_framework, which is not installed: pip install "infobatch[lightning]"
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise ImportError(
            f'this integration needs {package}, which is not installed: pip install "infobatch[{extra}]"'
        ) from error
