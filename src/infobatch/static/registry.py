"""Every static method by name, over collected arrays."""

from __future__ import annotations

import builtins
import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.checks import check_choice, nearest
from .collected import HOW, Collected
from .glister import glister
from .greedy import Picks
from .herding import herding
from .influence import influence, keep_longest_sum, parameter_influence
from .k_center import contextual_diversity, k_center
from .scores import Scores, el2n, forgetting, grand, least_confidence, margin
from .selection import Selection, count_of, highest, shares
from .submodular import craig, dq, graph_cut

Groups = builtins.list[tuple[NDArray[np.int64], int]]
"""(members, how many of them to select): one group of all samples, or one per class."""

_NAMED = 10  # how many of the classes without a pick a warning names
NOT_OPTIONS = ("bias", "count", "seed", "size")  # arguments that select() sets itself


@dataclass(frozen=True)
class StaticMethodInfo:
    """The card of a method: what it selects, its reference, the arrays it needs, and the options it takes."""

    name: str
    summary: str
    reference: str
    needs: tuple[str, ...]
    options: tuple[str, ...]


class StaticMethod(ABC):
    """A function of arrays, called with the arrays that its parameters name."""

    def __init__(self, function: Callable[..., Any], summary: str, reference: str, on: str = "features") -> None:
        self.function, self.summary, self.reference, self.on = function, summary, reference, on
        self.parameters = inspect.signature(function).parameters

    @property
    def needs(self) -> tuple[str, ...]:
        """The arrays it needs, unless an option says otherwise."""
        needed = set(self.parameters) & set(HOW)
        if "errors" in self.parameters and (self.on == "gradients" or not self._has_choice):
            needed |= {"logits", "labels"}
        return tuple(name for name in HOW if name in needed)

    @property
    def options(self) -> tuple[str, ...]:
        """The names of the options that the user may set."""
        own = [name for name in self.parameters if name not in (*HOW, *NOT_OPTIONS, "errors")]
        return (*own, "on") if self._has_choice else tuple(own)

    @property
    def _has_choice(self) -> bool:
        """Whether it works on features as well as on gradients, so that the user may choose."""
        return "errors" in self.parameters and self.parameters["errors"].default is None

    def call(self, name: str, data: Collected, options: dict[str, Any], **arguments: Any) -> Any:
        """The function's result for these arrays and options."""
        options = dict(options)
        on = options.pop("on", self.on)
        if on not in ("features", "gradients"):
            raise ValueError(f'on must be "features" or "gradients", got {on!r}')
        if "validation" in self.parameters:
            options["validation"] = _validation(name, options.get("validation"))
        arguments |= {"bias": data.bias, "size": len(data)}
        if "errors" in self.parameters and (on == "gradients" or not self._has_choice):
            arguments["errors"] = data.errors(name)
        arrays = {array: data.need(array, name) for array in HOW if array in self.parameters}
        return self.function(
            **arrays, **options, **{key: value for key, value in arguments.items() if key in self.parameters}
        )

    @abstractmethod
    def select(
        self, name: str, runs: builtins.list[Collected], groups: Groups, seed: int, options: dict[str, Any]
    ) -> Selection:
        """The chosen samples: as many from each group as the group says."""


class ByScore(StaticMethod):
    """Selects the highest scores, averaged over the runs."""

    def select(
        self, name: str, runs: builtins.list[Collected], groups: Groups, seed: int, options: dict[str, Any]
    ) -> Selection:
        if len(runs) > 1 and "validation" in self.parameters:
            raise ValueError(f"{name} takes one run, because validation is from one model; got {len(runs)}")
        scores: Scores = np.mean([self.call(name, run, options, seed=seed) for run in runs], axis=0)
        rng = np.random.default_rng(seed)
        chosen = np.concatenate([members[highest(scores[members], few, rng)] for members, few in groups])
        return _selection(chosen)


class ByPicking(StaticMethod):
    """Selects samples one after another, in each group separately."""

    def select(
        self, name: str, runs: builtins.list[Collected], groups: Groups, seed: int, options: dict[str, Any]
    ) -> Selection:
        if len(runs) > 1:
            raise ValueError(f"{name} takes one run, got {len(runs)}: only scores can be averaged over several")
        chosen, weights = [], []
        for number, (members, few) in enumerate(groups):
            data, own = runs[0], seed
            if len(members) < len(data):
                data, own = data.take(members), int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
            result = self.call(name, data, options, count=few, seed=own)
            picks, sizes = result if isinstance(result, tuple) else (result, np.ones(few))
            chosen.append(members[picks])
            weights.append(sizes)
        return _selection(np.concatenate(chosen), np.concatenate(weights))


class ByDropping(StaticMethod):
    """Drops, in each group separately, the samples that together matter least; how much each moves is from all data."""

    def select(
        self, name: str, runs: builtins.list[Collected], groups: Groups, seed: int, options: dict[str, Any]
    ) -> Selection:
        if len(runs) > 1:
            raise ValueError(f"{name} takes one run, got {len(runs)}: only scores can be averaged over several")
        moves = self.call(name, runs[0], options, seed=seed)
        return _selection(
            np.concatenate([members[keep_longest_sum(moves[members], few, seed)] for members, few in groups])
        )


def uniform(size: int, count: int, seed: int) -> Picks:
    """A uniform draw without replacement."""
    return np.random.default_rng(seed).choice(size, count, replace=False)


def near_boundary(distances: Scores) -> Scores:
    """Scores that are higher the nearer a sample is to the decision boundary."""
    return -np.asarray(distances, np.float64)


METHODS: dict[str, StaticMethod] = {
    "random": ByPicking(uniform, "a uniform subset", "the baseline to beat"),
    "cd": ByPicking(contextual_diversity, "k-center on predictions", "Agarwal et al., ECCV 2020"),
    "herding": ByPicking(herding, "keep the mean of the features", "Welling, ICML 2009"),
    "k-center": ByPicking(k_center, "cover the features", "Sener and Savarese, ICLR 2018"),
    "least-confidence": ByScore(least_confidence, "the least confident", "Coleman et al., ICLR 2020"),
    "margin": ByScore(margin, "the smallest lead of the first class", "Coleman et al., ICLR 2020"),
    "forgetting": ByScore(forgetting, "the most often forgotten", "Toneva et al., ICLR 2019"),
    "grand": ByScore(grand, "the largest gradients", "Paul et al., NeurIPS 2021"),
    "el2n": ByScore(el2n, "the largest errors", "Paul et al., NeurIPS 2021"),
    "deepfool": ByScore(near_boundary, "the nearest to the decision boundary", "Ducoffe and Precioso, 2018"),
    "craig": ByPicking(craig, "medoids of the gradients", "Mirzasoleiman et al., ICML 2020", on="gradients"),
    "graph-cut": ByPicking(graph_cut, "like all, unlike each other", "Iyer et al., ALT 2021"),
    "glister": ByPicking(glister, "what lowers the validation loss", "Killamsetty et al., AAAI 2021"),
    "influence": ByScore(influence, "what lowers the validation loss, by the Hessian", "Koh and Liang, ICML 2017"),
    "dp": ByDropping(parameter_influence, "all but what moves the parameters least", "Yang et al., ICLR 2023"),
    "dq": ByPicking(dq, "alike from bins made by graph cut", "Zhou et al., ICCV 2023"),
}


def list() -> builtins.list[str]:  # noqa: A001 (the contract's name)
    """The names of all methods."""
    return sorted(METHODS)


def info(name: str) -> StaticMethodInfo:
    """The card of a method.

    >>> info("craig").needs
    ('features', 'logits', 'labels')
    """
    method = _find(name)
    return StaticMethodInfo(name, method.summary, method.reference, method.needs, method.options)


def select(
    name: str,
    data: Collected | Iterable[Collected],
    size: float,
    *,
    balanced: bool = False,
    seed: int = 0,
    **options: Any,
) -> Selection:
    """Select the samples to train on by a static method.

    Args:
        name: one of ``static.list()``.
        data: the arrays of one run, or of several, over which a method that scores samples averages (EL2N-n, GraNd-n).
        size: how many samples to select: a float in (0, 1] is a share of all, a whole number is a count.
        balanced: select in each class separately, so that all classes keep the same share to within one sample, and at
            least one sample; if ``size`` is less than the number of classes, a warning names those that get none.
        seed: the seed of all random draws.
        options: the method's own options: see ``static.info(name).options``.
    """
    method = _find(name)
    for option in options:
        if option not in method.options:
            raise TypeError(f"{name} has no option {option!r}{nearest(option, method.options)}")
    runs = [data] if isinstance(data, Collected) else [*data]
    sizes = [len(run) for run in runs]
    if len(set(sizes)) != 1:
        raise ValueError(f"data must be the arrays of one run or of several on the same samples, got sizes {sizes}")
    count = count_of(size, sizes[0])
    groups = [(np.arange(sizes[0]), count)]
    if balanced:
        labels = runs[0].need("labels", "balanced=True")
        groups = shares(labels, count)
        _warn_of_lost_classes([labels[members[0]] for members, few in groups if not few], count, len(groups))
        groups = [group for group in groups if group[1]]
    return method.select(name, runs, groups, seed, options)


def _warn_of_lost_classes(lost: builtins.list[Any], count: int, classes: int) -> None:
    """Warn which classes get no pick, because there are more classes than picks."""
    if lost:
        named = ", ".join(map(str, lost[:_NAMED])) + (f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else "")
        warnings.warn(
            f"balanced=True selects {count} samples of {classes} classes, and none of class {named}: a model trained "
            f"on them never sees these. Set size to at least {classes}, one sample a class",
            RuntimeWarning,
            stacklevel=3,
        )


def _find(name: str) -> StaticMethod:
    check_choice("static method", name, list())
    return METHODS[name]


def _validation(name: str, held_out: Any) -> tuple[Any, Any, Any]:
    """The arrays of the held-out samples."""
    if not isinstance(held_out, Collected):
        raise TypeError(
            f"{name} needs validation, the Collected arrays of samples held out from training, got {held_out!r}: "
            "validation=static.collect(model, validation_loader)"
        )
    features, logits, labels = (held_out.need(array, "validation") for array in ("features", "logits", "labels"))
    return features, logits, labels


def _selection(chosen: NDArray[np.int64], weights: NDArray[Any] | None = None) -> Selection:
    order = np.argsort(chosen)
    weights = np.ones(len(chosen)) if weights is None else weights[order].astype(np.float64)
    return Selection(chosen[order], weights)
