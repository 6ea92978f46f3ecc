"""infobatch: train on fewer samples, reach the same model."""

from . import checkpoint, methods
from .core.plan import EpochPlan
from .dataset import InfoBatch
from .schedule import paced

__version__ = "0.1.0"
__all__ = ["EpochPlan", "InfoBatch", "checkpoint", "methods", "paced"]
