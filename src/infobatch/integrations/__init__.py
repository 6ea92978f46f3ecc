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
    """Import ``infobatch.integrations.lightning`` and the like at their first use."""
    if name in FRAMEWORKS:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def sampler_of(loader: Any) -> Any:
    """The sampler that a loader takes its indices from, directly or through a batch sampler; None if it has none."""
    return getattr(getattr(loader, "batch_sampler", None), "sampler", getattr(loader, "sampler", None))


def batching(train_data: InfoBatch, batch_size: int, drop_last: bool, keep_steps: bool) -> dict[str, Any]:
    """The arguments that make torch's DataLoader take its batches from ``train_data``."""
    check_flag("keep_steps", keep_steps, "whether every epoch has as many batches as full data, and they shrink")
    if keep_steps:
        return {"batch_sampler": train_data.batches(batch_size, drop_last)}
    return {"batch_size": batch_size, "sampler": train_data.sampler, "drop_last": drop_last}


def torch_seed() -> int | None:
    """The seed that a framework's function (``set_seed``, ``random_seed``) gave to torch; None if nobody seeded it.

    Such functions seed numpy as well, whose seeds have at most 32 bits. Without them torch starts from a random seed of
    64 bits.
    """
    seed = torch.initial_seed()
    return seed if seed < 1 << 32 else None


@contextmanager
def needs(package: str, extra: str) -> Iterator[None]:
    """Say what to install if importing ``package`` in this block fails because it is not installed.

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
