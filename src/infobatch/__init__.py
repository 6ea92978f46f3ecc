"""infobatch: train on fewer samples, reach the same model."""

import importlib
from typing import TYPE_CHECKING, Any

from . import checkpoint, methods
from .core.delivery import DriftError
from .core.plan import EpochPlan
from .core.weights import PairWeights
from .dataset import InfoBatch
from .exhibits import Html
from .schedule import paced
from .stream import Stream

if TYPE_CHECKING:
    from . import integrations, scoring, static
    from .lab.own import compare
    from .lab.trial import Trial

__version__ = "0.1.0"
__all__ = [
    "DriftError",
    "EpochPlan",
    "Html",
    "InfoBatch",
    "PairWeights",
    "Stream",
    "Trial",
    "checkpoint",
    "compare",
    "integrations",
    "methods",
    "paced",
    "scoring",
    "static",
]
_LOADED_WHEN_ASKED_FOR = ("integrations", "scoring", "static")
_FROM_THE_LAB = {"Trial": "trial", "compare": "own"}


def __getattr__(name: str) -> Any:
    """``infobatch.static``, ``infobatch.compare`` and the like, imported when they are first asked for."""
    if name in _LOADED_WHEN_ASKED_FOR:
        return importlib.import_module(f".{name}", __name__)
    if name in _FROM_THE_LAB:
        return getattr(importlib.import_module(f".lab.{_FROM_THE_LAB[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
