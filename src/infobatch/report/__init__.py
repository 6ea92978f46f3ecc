"""Reports: from plain records of training runs to progress bars, tables and pictures. Nothing here imports torch.

``progress`` and ``table`` need rich, ``picture`` needs matplotlib: both come with ``pip install "infobatch[lab]"``
and are imported with those modules only.
"""

from .records import Pair, RunRecord, Tick

__all__ = ["Pair", "RunRecord", "Tick"]
