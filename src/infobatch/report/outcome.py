"""The result of every method of a comparison: its curves over the seeds, and its pairs with full data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import mean, median, stdev

from ..records import SCORE_EDGES, Pair, RunRecord, options, title
from .statistics import FEWEST, Difference, pair_runs, t_quantile


@dataclass(frozen=True)
class Band:
    """A mean over seeds per epoch, and how far its 95 % interval reaches to either side.

    Fewer than three seeds have no interval: with two it would reach 13 standard errors and dwarf every curve.
    """

    mean: tuple[float, ...]
    reach: tuple[float, ...] | None

    @classmethod
    def of(cls, curves: Sequence[Sequence[float]]) -> Band:
        """Make a band from one curve per seed; it ends where the shortest curve ends.

        >>> Band.of([[1.0, 2.0], [3.0, 2.0]]).mean, Band.of([[1.0, 2.0]]).reach
        ((2.0, 2.0), None)
        """
        n, epochs = len(curves), list(zip(*curves, strict=False))
        means = tuple(map(mean, epochs))
        if n < FEWEST:
            return cls(means, None)
        return cls(means, tuple(t_quantile(n - 1) * _stdev(values) / math.sqrt(n) for values in epochs))


@dataclass(frozen=True)
class Outcome:
    """A method's runs, and its pairs: the runs that share a seed with a run on full data.

    ``number`` decides the method's colour: 0 is full data, whether or not it was run.
    """

    method: str
    number: int
    runs: tuple[RunRecord, ...]
    pairs: tuple[Pair, ...]

    @property
    def name(self) -> str:
        """The method's name in tables and on pages."""
        return title(self.method)

    @property
    def diverged(self) -> tuple[int, ...]:
        """The seeds whose metric is not finite at the end, here or on full data; then there is no difference."""
        return tuple(p.full.seed for p in self.pairs if not math.isfinite(p.full.value + p.pruned.value))

    @property
    def difference(self) -> Difference | None:
        """The difference to full data, seed by seed; None without a pair or where a run diverged."""
        if not self.pairs or self.diverged:
            return None
        full, pruned = [p.full.value for p in self.pairs], [p.pruned.value for p in self.pairs]
        return Difference.of(full, pruned, self.runs[0].higher_is_better)

    def verdict(self, margin: float) -> str:
        """The verdict on the difference; empty without a pair, as for full data itself."""
        if self.diverged:
            return "a run diverged"
        return "" if self.difference is None else self.difference.verdict(margin)

    @property
    def compared(self) -> tuple[RunRecord, ...]:
        """The runs that all figures are taken from: those paired with full data, or all where no pair exists."""
        return tuple(pair.pruned for pair in self.pairs) or self.runs

    @property
    def values(self) -> list[float]:
        """The metric of these runs at the end of training."""
        return [run.value for run in self.compared]

    @property
    def saved(self) -> float:
        """The share of full data's samples that the method did not train on."""
        if not self.pairs:
            return mean(run.saving for run in self.runs)
        return 1 - mean(p.pruned.samples / p.full.samples for p in self.pairs)

    @property
    def noise(self) -> float | None:
        """The mean noise factor; None where no record holds it."""
        values = [run.mean_noise for run in self.compared if run.mean_noise is not None]
        return mean(values) if values else None

    @property
    def ideal(self) -> float | None:
        """The speed-up if time depended on the number of samples alone, as the median of the pairs."""
        return median(pair.ideal for pair in self.pairs) if self.pairs else None

    @property
    def realised(self) -> float | None:
        """The measured speed-up, as the median of the pairs; None where a run did not take turns with full data."""
        ratios = [pair.realised for pair in self.pairs]
        known = [ratio for ratio in ratios if ratio is not None]
        return median(known) if known and len(known) == len(ratios) else None

    @property
    def efficiencies(self) -> list[float]:
        """Realised ÷ ideal speed-up of each pair; empty where a run did not take turns with full data."""
        ratios = [pair.efficiency for pair in self.pairs]
        return [ratio for ratio in ratios if ratio is not None] if self.realised is not None else []

    @property
    def samples(self) -> tuple[float, ...]:
        """Samples trained on up to the end of each epoch."""
        return Band.of([list(accumulate(run.kept)) for run in self.runs]).mean

    @property
    def noise_band(self) -> Band | None:
        """The noise factor per epoch, from the runs whose records hold it."""
        curves = [run.noise for run in self.runs if run.noise]
        return Band.of(curves) if curves else None

    def band(self, curve: Callable[[RunRecord], Sequence[float]]) -> Band:
        """The mean of a curve over the seeds, with its interval."""
        return Band.of([curve(run) for run in self.runs])


def outcomes(records: Sequence[RunRecord]) -> list[Outcome]:
    """One outcome per method: full data first, the others in the order in which they appear.

    Runs of one comparison share the data, the metric and the recipe; others raise a ValueError. Only the number of
    epochs may differ (full data on a shortened schedule), and the learning rate of a method that sets its own
    (``full:cost=0.5,lr=0.2``).
    """
    if not records:
        raise ValueError("records must hold at least one run, got none: train a method first")
    first = next((run for run in records if run.method == "full"), records[0])
    seen = set[tuple[str, int]]()
    for run in records:
        if (run.method, run.seed) in seen:
            raise ValueError(f"records must hold a run once, got {run.method!r} with seed {run.seed} twice: drop one")
        seen.add((run.method, run.seed))
        _check(run)
        ours, theirs = _shared_settings(first), _shared_settings(run)
        own_lr = any("lr" in options(each.method) for each in (first, run))
        for key in ours | theirs:
            if not (own_lr and key == "recipe's lr") and ours.get(key) != theirs.get(key):
                raise ValueError(
                    f"records must share one {key}, got {ours.get(key)!r} ({first.method}, seed {first.seed}) and "
                    f"{theirs.get(key)!r} ({run.method}, seed {run.seed}): report them apart"
                )
    return group_by_method(records)


def group_by_method(records: Sequence[RunRecord]) -> list[Outcome]:
    """The same as :func:`outcomes`, without its checks: for records that are known to be of one comparison."""
    methods = ["full", *dict.fromkeys(run.method for run in records if run.method != "full")]
    candidates = [_outcome(records, method, number) for number, method in enumerate(methods)]
    return [outcome for outcome in candidates if outcome.runs]


def _outcome(records: Sequence[RunRecord], method: str, number: int) -> Outcome:
    own = sorted((run for run in records if run.method == method), key=lambda run: run.seed)
    pairs = [] if method == "full" else [Pair(full, run) for full, run in pair_runs(records, method)]
    return Outcome(method, number, tuple(own), tuple(pairs))


def _check(run: RunRecord) -> None:
    """Raise a ValueError where a record contradicts itself."""
    who, epochs = f"{run.method!r} with seed {run.seed}", len(run.kept)
    if not epochs or {len(run.losses), len(run.times), len(run.values)} != {epochs}:
        lengths = f"{epochs}, {len(run.losses)}, {len(run.times)} and {len(run.values)}"
        raise ValueError(f"kept, losses, times and values must have an entry per epoch, got {lengths} ({who})")
    if min(run.kept) < 1 or min(run.times) <= 0:
        least = f"{min(run.kept)} and {min(run.times)}"
        raise ValueError(f"kept and times must be positive in every epoch, got {least} at the least ({who})")
    if run.noise and len(run.noise) != epochs:
        raise ValueError(f"noise must have an entry per epoch, or be empty, got {len(run.noise)} of {epochs} ({who})")
    bins = len(SCORE_EDGES) - 1
    if run.histograms and (len(run.histograms) != epochs or {len(counts) for counts in run.histograms} != {bins}):
        raise ValueError(f"histograms must have {bins} counts for each of the {epochs} epochs, or be empty ({who})")


def _shared_settings(run: RunRecord) -> dict[str, object]:
    """What all runs of one comparison have in common."""
    recipe = {f"recipe's {key}": value for key, value in run.recipe.items() if key != "epochs"}
    return {"metric": run.metric, "higher_is_better": run.higher_is_better, "total": run.total, **recipe}


def _stdev(values: Sequence[float]) -> float:
    """The standard deviation; NaN where a value is not finite (``statistics.stdev`` may raise there)."""
    return stdev(values) if all(map(math.isfinite, values)) else math.nan
