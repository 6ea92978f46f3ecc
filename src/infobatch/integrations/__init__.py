"""One file per framework, the only place that imports it: ``from infobatch.integrations.lightning import …``."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FRAMEWORKS = ("accelerate", "lightning", "logging", "ray", "timm", "transformers")


def __getattr__(name: str) -> Any:
    """``infobatch.integrations.lightning`` and the like, imported when they are first asked for."""
    if name in FRAMEWORKS:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def sampler_of(loader: Any) -> Any:
    """What a loader takes its indices from, in batches or one by one; None where it has no such thing."""
    return getattr(getattr(loader, "batch_sampler", None), "sampler", getattr(loader, "sampler", None))


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
