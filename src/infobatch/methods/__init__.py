"""Every dynamic pruning method by name.

>>> from infobatch import methods
>>> methods.list()  # doctest: +NORMALIZE_WHITESPACE
['bls', 'divbs', 'dyn-unc', 'epsilon-greedy', 'full', 'ies', 'infobatch', 'infobatch-adaptive', 'infobatch-quantile',
 'kakurenbo', 'orderdp', 'random', 'repb', 'rs2', 'selective-backprop', 'seta', 'ucb', 'weighted-bernoulli']
>>> methods.create("infobatch", ratio=0.3).ratio
0.3
"""

from __future__ import annotations

import builtins
import inspect
from typing import Any, TypeVar

from ..core.checks import check_choice, nearest
from ..core.draw import fixed_size, systematic
from ..core.method import BatchMethod, Epoch, Memory, Method, MethodInfo
from ..core.weights import Weights
from .adaptive import NoiseBudget
from .bls import BatchLossScore
from .divbs import DiverseBatch
from .dyn_unc import DynamicUncertainty
from .epsilon_greedy import EpsilonGreedy
from .full import Full
from .grouped import GroupedMethod
from .ies import InstanceStopping
from .infobatch import MeanRule
from .kakurenbo import Kakurenbo
from .orderdp import OrderStatistics
from .quantile import QuantileRule
from .random import RandomSubset
from .repb import LocalComparison
from .rs2 import RepeatedSampling
from .selective_backprop import SelectiveBackprop
from .seta import SlidingWindow
from .ucb import UpperConfidenceBound
from .weighted_bernoulli import WeightedBernoulli

__all__ = [
    "BatchMethod",
    "Epoch",
    "GroupedMethod",
    "Memory",
    "Method",
    "MethodInfo",
    "Weights",
    "create",
    "fixed_size",
    "info",
    "list",
    "options_of",
    "register",
    "systematic",
]

_REGISTRY: dict[str, type[Method]] = {}
_M = TypeVar("_M", bound=type[Method])


def register(method: _M) -> _M:
    """Make a method class available under ``method.info.name``; usable as a decorator."""
    name = method.info.name
    if _REGISTRY.get(name, method) is not method:
        raise ValueError(f"a method named {name!r} is registered already ({_REGISTRY[name].__qualname__})")
    _REGISTRY[name] = method
    return method


def list() -> builtins.list[str]:  # noqa: A001 (the contract's name)
    """The names of all methods."""
    return sorted(_REGISTRY)


def info(name: str) -> MethodInfo:
    """The card of a method."""
    return _find(name).info


def create(name: str, **options: Any) -> Method:
    """A method by name with its options; a wrong name or option names the nearest right one."""
    method, known = _find(name), options_of(name)
    for option in options:
        if option not in known:
            raise TypeError(f"method {name!r} has no option {option!r}{nearest(option, known)}")
    return method(**options)


def _find(name: str) -> type[Method]:
    check_choice("method", name, list())
    return _REGISTRY[name]


def options_of(name: str) -> builtins.list[str]:
    """The options a method takes: all keywords along its class's constructors."""
    names: builtins.list[str] = []
    for cls in _find(name).__mro__:
        if "__init__" not in vars(cls) or cls is object:
            continue
        parameters = inspect.signature(vars(cls)["__init__"]).parameters.values()
        names += [p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)][1:]
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return names


for _method in (
    Full,
    MeanRule,
    QuantileRule,
    NoiseBudget,
    RandomSubset,
    EpsilonGreedy,
    UpperConfidenceBound,
    DynamicUncertainty,
    RepeatedSampling,
    Kakurenbo,
    SlidingWindow,
    OrderStatistics,
    InstanceStopping,
    LocalComparison,
    WeightedBernoulli,
    SelectiveBackprop,
    DiverseBatch,
    BatchLossScore,
):
    register(_method)
