"""The figures of the paper that are drawn from runs: 4b, 4d and 6."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np

from ... import methods
from ...core.method import Epoch
from ...records import RunRecord
from ...report import figures
from ..comparison import Comparison


class Drawn(NamedTuple):
    """The files of a figure, and a sentence with its numbers if the table does not have them."""

    paths: list[Path]
    said: str = ""


def draw(number: str, comparisons: Sequence[Comparison], out: Path) -> Drawn:
    """Draw the finished runs into files named after the figure; nothing for a table without a figure."""
    finished = all({"full"} < {run.method for run in comparison.records()} for comparison in comparisons)
    return FIGURES[number](comparisons, out / number) if number in FIGURES and finished else Drawn([])


def _savings(comparisons: Sequence[Comparison], path: Path) -> Drawn:
    return Drawn(figures.savings([comparison.records() for comparison in comparisons], path))


def _pruned_per_epoch(comparisons: Sequence[Comparison], path: Path) -> Drawn:
    runs = [run for run in comparisons[0].records() if run.method == "infobatch"]
    left_out = [mean(run.total - kept for run, kept in zip(runs, epoch, strict=True)) for epoch in _by_epoch(runs)]
    said = "Samples left out, epoch by epoch: " + ", ".join(f"{count:,.0f}" for count in left_out)
    return Drawn(figures.pruned_per_epoch(runs, path), said)


def _by_epoch(runs: Sequence[RunRecord]) -> list[tuple[int, ...]]:
    return list(zip(*(run.kept for run in runs), strict=True))


def _distribution(comparisons: Sequence[Comparison], path: Path) -> Drawn:
    """The effect of InfoBatch on the losses at the end of training on full data, for the first seed."""
    scores = comparisons[0].scores("full", comparisons[0].seeds[0])
    losses = scores[np.isfinite(scores)]
    selected = methods.create("infobatch").select(losses, Epoch(1, range(1, 2), 2, 0), np.random.default_rng(0))
    weights = selected.of(np.arange(len(losses)))
    said = (
        f"Sum of the losses: {losses.sum(dtype=np.float64):,.1f} of all {len(losses):,} samples, "
        f"{losses[weights > 0].sum(dtype=np.float64):,.1f} of the {np.count_nonzero(weights):,} that pruning leaves, "
        f"{losses @ weights:,.1f} of these rescaled"
    )
    return Drawn(figures.distribution(losses, weights, path), said)


FIGURES: dict[str, Callable[[Sequence[Comparison], Path], Drawn]] = {
    "figure-4b": _savings,
    "figure-4d": _pruned_per_epoch,
    "figure-6": _distribution,
}
