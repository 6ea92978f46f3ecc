"""KAKURENBO: hide samples of low loss that are predicted rightly and with confidence."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.checks import check_flag, checked_part, checked_ratio
from ..core.method import Epoch, Method, MethodInfo
from ..core.thresholds import highest
from ..core.weights import Weights

STEPS = ((0.0, 1.0), (0.3, 0.8), (0.6, 0.6), (0.8, 0.4))  # of 200 epochs: 0, 60, 120, 160
_PATIENCE = 2  # pruned epochs after which some sample should be predicted with confidence
NOTHING = (
    "kakurenbo hides nothing in epoch {}: not one of {} samples has a score of {:.3f} or less, which is a label's "
    "probability of {} (the lowest score is {:.3f}). A cross-entropy with label smoothing never gets so low: give one "
    "without it as the score, update(loss, score=cross_entropy(logits, labels, reduction='none')). A model that has "
    "learned little so far needs more epochs, or a lower confidence"
)


class Kakurenbo(Method):
    """The ``fraction`` of all samples with the lowest loss may be hidden; those predicted with confidence are.

    The fraction falls by ``steps``, pairs (share of training done, factor). Right and with a confidence of at least
    ``confidence`` means that the label's probability exp(-score) is at least that, so the score must be a
    cross-entropy without smoothing. With ``rescale`` all losses are multiplied by N/kept, which for SGD without
    momentum and weight decay is the paper's larger learning rate. Hidden samples keep their old loss unless they are
    looked at again: ``train_data.left_out`` names them, ``train_data.note(loss, index)`` books what a forward pass over
    them found.
    """

    info: ClassVar = MethodInfo(
        name="kakurenbo",
        summary="hides samples of low loss that are predicted with confidence, fewer as training goes on",
        reference="Nguyen et al., KAKURENBO: Adaptively hiding samples in deep neural network training, NeurIPS 2023",
        unbiased=False,
        anneals=False,
    )
    refreshes: ClassVar = True

    def __init__(
        self,
        fraction: float = 0.3,
        *,
        confidence: float = 0.7,
        steps: Sequence[tuple[float, float]] = STEPS,
        rescale: bool = True,
    ) -> None:
        self.fraction = checked_ratio(fraction, "fraction", "the share of all samples that may be hidden")
        self.confidence = checked_part("confidence", confidence, "a label's probability; the paper uses 0.7")
        self.steps = tuple((float(start), float(factor)) for start, factor in steps)
        starts = [start for start, _ in self.steps]
        if not starts or starts[0] != 0 or starts != sorted(set(starts)) or starts[-1] >= 1:
            raise ValueError(
                f"steps must be pairs (share of training done, factor), from 0 on and ascending, got {self.steps}"
            )
        for _, factor in self.steps:
            checked_part("a factor of steps", factor, "the share of the fraction that is hidden from then on")
        check_flag("rescale", rescale, "whether all losses are multiplied by N/kept")
        self.rescale = bool(rescale)

    def hidden_at(self, progress: float) -> float:
        """The share of all samples that may be hidden when ``progress`` of training is done."""
        return self.fraction * next(factor for start, factor in reversed(self.steps) if progress >= start)

    def select(self, scores: NDArray[np.float32], epoch: Epoch, rng: np.random.Generator) -> Weights:
        count = math.floor(Fraction(repr(self.hidden_at(epoch.progress))) * len(scores))
        known = ~np.isnan(scores)
        candidates = highest(np.where(known, -scores, -np.inf), count, rng)
        bound = np.float32(-math.log(self.confidence))
        hidden = candidates & (scores <= bound)
        by_now = min(epoch.pruning.start + _PATIENCE, epoch.pruning[-1])
        if epoch.index == by_now and count and known.any() and not hidden.any():
            text = NOTHING.format(epoch.index, len(scores), bound, self.confidence, np.nanmin(scores))
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        kept = len(scores) - int(np.count_nonzero(hidden))
        return Weights.only(~hidden, len(scores) / kept if self.rescale else 1.0)

    def expected_saving(self, pruning: range, num_epochs: int) -> float:
        return sum(self.hidden_at(epoch / num_epochs) for epoch in pruning) / num_epochs

    def options(self) -> dict[str, object]:
        return {
            "fraction": self.fraction,
            "confidence": self.confidence,
            "steps": self.steps,
            "rescale": self.rescale,
        }
