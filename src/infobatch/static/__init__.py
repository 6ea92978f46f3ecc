"""Static coreset selection: arrays in, indices and weights out. Nothing here trains.

>>> import numpy as np
>>> from infobatch import static
>>> data = static.Collected(logits=np.log([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.5, 0.5]]))
>>> static.select("least-confidence", data, 0.5).indices
array([1, 3])
"""

from .collect import collect
from .collected import Collected
from .deepfool import deepfool
from .dynamics import Dynamics
from .glister import glister
from .herding import herding
from .influence import dp, influence
from .k_center import contextual_diversity, k_center
from .registry import StaticMethodInfo, info, list, select  # noqa: A004 (the contract's name)
from .scores import el2n, forgetting, grand, least_confidence, margin
from .selection import Selection
from .submodular import craig, dq, graph_cut

__all__ = [
    "Collected",
    "Dynamics",
    "Selection",
    "StaticMethodInfo",
    "collect",
    "contextual_diversity",
    "craig",
    "deepfool",
    "dp",
    "dq",
    "el2n",
    "forgetting",
    "glister",
    "grand",
    "graph_cut",
    "herding",
    "influence",
    "info",
    "k_center",
    "least_confidence",
    "list",
    "margin",
    "select",
]
