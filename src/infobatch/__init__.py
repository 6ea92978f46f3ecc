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
_LAZY_MODULES = ("integrations", "scoring", "static")
_LAB_MODULES = {"Trial": "trial", "compare": "own"}  # the module of the lab that defines each name


def __getattr__(name: str) -> Any:
    """Import ``infobatch.static``, ``infobatch.compare`` and the like at their first use."""
    if name in _LAZY_MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name in _LAB_MODULES:
        return getattr(importlib.import_module(f".lab.{_LAB_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
