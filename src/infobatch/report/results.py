"""A comparison as terminal, page and files show it, with notes on how far its figures can be trusted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..records import RunRecord, group_by_further_measure, title
from .outcome import Outcome, group_by_method, outcomes
from .statistics import FEWEST, digits_of

# A run gets a warning where the time per sample of its slowest epoch is more than this factor that of its fastest.
UNEVEN = 1.5


class Note(NamedTuple):
    """A warning that a reader needs before trusting a figure; a loud one is about all figures."""

    text: str
    loud: bool = False


@dataclass(frozen=True)
class Results:
    """A comparison: its methods, full data first, and ``margin``: how much worse still counts as lossless.

    ``fixed`` says whether the margin was fixed before the first run.
    """

    methods: tuple[Outcome, ...]
    margin: float
    fixed: bool = True

    @classmethod
    def of(cls, records: Sequence[RunRecord], margin: float, fixed: bool = True) -> Results:
        """Make the results from all runs of a comparison; a ValueError says why runs cannot be compared."""
        if not 0 <= margin < math.inf:
            raise ValueError(f"margin must be a number from 0 on, in the unit of the metric, got {margin}")
        return cls(tuple(outcomes(records)), margin, fixed)

    @property
    def runs(self) -> list[RunRecord]:
        """The runs of all methods."""
        return [run for outcome in self.methods for run in outcome.runs]

    @property
    def metric(self) -> str:
        """The name of the metric that methods are judged by."""
        return self.methods[0].runs[0].metric

    @property
    def digits(self) -> int:
        """How many digits after the point are worth printing."""
        return digits_of(self.margin)

    @property
    def full(self) -> Outcome | None:
        """Full data, if it was run."""
        return next((outcome for outcome in self.methods if outcome.method == "full"), None)

    @property
    def further(self) -> list[list[Outcome]]:
        """The methods judged by each further measure: a list for each number that was taken once, after training."""
        number = {outcome.method: outcome.number for outcome in self.methods}
        return [
            [replace(outcome, number=number[outcome.method]) for outcome in group_by_method(runs)]
            for runs in group_by_further_measure(self.runs)
        ]

    def notes(self) -> Iterator[Note]:
        """The warnings that a reader needs before trusting a figure."""
        others = [outcome for outcome in self.methods if outcome.method != "full"]
        pairs = max((len(outcome.pairs) for outcome in others), default=0)
        if self.full is None:
            yield Note(
                "There is no run on full data, so there is nothing to compare with: run the method full too.", True
            )
        elif not others:
            yield Note("There are only runs on full data: run a method with the same seeds.", loud=True)
        elif pairs < FEWEST:
            seeds = "One seed is" if pairs < 2 else f"{pairs} seeds are"
            yield Note(
                f"{seeds} a demonstration, not a result: a verdict needs {FEWEST} paired seeds, and 5 are better.", True
            )
        for outcome in others:
            if self.full is not None:
                yield from _notes_on_seeds(outcome, self.full)
        if not self.fixed:
            yield Note("The margin was not fixed before the runs: verdicts depend on it.")
        if (count := sum(outcome.difference is not None and len(outcome.pairs) > 1 for outcome in others)) > 1:
            yield Note(
                f"Each interval holds at 95 % for its own method: there is no correction for comparing {count} methods."
            )
        yield from self._notes_on_times()

    def _notes_on_times(self) -> Iterator[Note]:
        uneven = max(run.unevenness for run in self.runs)
        if uneven > UNEVEN:
            own = any("function" in run.recipe for run in self.runs)
            or_else = (
                ", or the function does other work than training in some epochs (starts workers, tests)" if own else ""
            )
            yield Note(
                f"The machine was busy{or_else}: per sample, the slowest epoch of a run took {uneven:.1f} times as "
                "long as the fastest. Do not trust the times."
            )
        pairs = [pair for outcome in self.methods for pair in outcome.pairs]
        if any(place(pair.full) != place(pair.pruned) for pair in pairs):
            yield Note("Runs of one seed were made in different environments: do not compare their times.")
        if alone := list(dict.fromkeys(title(pair.pruned.method) for pair in pairs if not pair.took_turns)):
            yield Note(
                f"No measured speed-up, because these methods did not take turns with full data: {', '.join(alone)}."
            )


def _notes_on_seeds(outcome: Outcome, full: Outcome) -> Iterator[Note]:
    ours, theirs = ({run.seed for run in o.runs} for o in (outcome, full))
    if not ours & theirs:
        yield Note(f"{outcome.name} shares no seed with full data, so it has no difference.")
    elif lacking := sorted(ours ^ theirs):
        yield Note(
            f"{outcome.name} and full data do not both have {name_seeds(lacking)}: its figures are taken "
            f"from the {len(outcome.pairs)} shared, its curves from all seeds."
        )
    if outcome.diverged:
        yield Note(
            f"{outcome.name}: {name_seeds(outcome.diverged)} ended without a finite metric, here or on full data. "
            "Leaving out failed runs would flatter the method, so it has no difference and no verdict."
        )


def name_seeds(seeds: Sequence[int]) -> str:
    """Seeds in words.

    >>> name_seeds([3]), name_seeds([3, 4])
    ('seed 3', 'seeds 3, 4')
    """
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def place(run: RunRecord) -> dict[str, object]:
    """The environment in which a run was made."""
    return {key: value for key, value in run.environment.items() if key != "command"}
