"""What is told of a training run while it goes on, and what is kept of it afterwards."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import mean
from typing import Any, NamedTuple

_NAMES = {
    "full": "Full data",
    "infobatch": "InfoBatch",
    "infobatch-quantile": "InfoBatch, quantiles",
    "infobatch-adaptive": "InfoBatch, noise budget",
    "random": "Random",
    "random+rescale+anneal": "Random, rescaled",
    "full-shortened": "Full data, shortened",
}
# Scores span many powers of ten; those outside are counted at the ends.
SCORE_EDGES: tuple[float, ...] = tuple(10 ** (k / 6) for k in range(-36, 13))


def title(method: str) -> str:
    """How a method is called in front of readers; one without a name of its own goes by its key.

    >>> title("infobatch"), title("ucb")
    ('InfoBatch', 'ucb')
    """
    return _NAMES.get(method, method)


def options(method: str) -> dict[str, str]:
    """The options in a method's label.

    >>> options("infobatch-adaptive:noise=0.2,steps=stay"), options("infobatch")
    ({'noise': '0.2', 'steps': 'stay'}, {})
    """
    settings = method.partition(":")[2].split(",")
    return {key: value for key, equals, value in (setting.partition("=") for setting in settings) if equals}


@dataclass(frozen=True)
class Tick:
    """Where a run is: ``done`` of the epoch's ``kept`` of ``total`` samples, its mean loss, the run's time so far.

    ``saving`` is the share of the whole training that is expected to be saved, as far as can be told now.
    """

    method: str
    seed: int
    epoch: int
    epochs: int
    done: int
    kept: int
    total: int
    loss: float
    seconds: float
    saving: float = 0.0


class Measure(NamedTuple):
    """What was measured beside the metric, once, after training."""

    name: str
    value: float
    higher_is_better: bool


@dataclass(frozen=True)
class RunRecord:
    """One training run: on how much, how long, how good, and where.

    ``kept``, ``losses``, ``times``, ``values``, ``histograms`` and ``noise`` hold one entry per epoch: the samples
    trained on, of ``total``; the mean loss over all samples, as estimated by the weighted losses of those; the seconds
    of the training loop; the metric on held-out data; how many scores lie between two ``SCORE_EDGES``; the noise factor
    (how many times smaller batches would be as noisy). The last two are empty in old records. ``saving`` is the share
    of full training that was saved, ``overhead`` the seconds spent in the library itself, ``preparation`` those spent
    before training to select what is trained on or, in a function of the user's own, outside of its epochs. ``beside``
    are the methods that took turns with this one, an epoch each (the user's own functions: a whole run each, one after
    the other); None in old records, which do not say. ``hardest`` and ``most_pruned`` name samples, with their score
    and with how often they were left out. ``further`` is what else was measured at the end, ``scores`` the table then.
    """

    method: str
    seed: int
    metric: str
    higher_is_better: bool
    total: int
    kept: tuple[int, ...]
    losses: tuple[float, ...]
    times: tuple[float, ...]
    values: tuple[float, ...]
    saving: float
    overhead: float = 0.0
    preparation: float = 0.0
    beside: tuple[str, ...] | None = None
    histograms: tuple[tuple[int, ...], ...] = ()
    noise: tuple[float, ...] = ()
    hardest: tuple[tuple[int, float], ...] = ()
    most_pruned: tuple[tuple[int, float], ...] = ()
    further: tuple[Measure, ...] = ()
    recipe: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    scores: Sequence[float] = field(default=(), repr=False, compare=False)

    @property
    def value(self) -> float:
        """The metric at the end of training."""
        return self.values[-1]

    @property
    def samples(self) -> int:
        """Samples trained on in all epochs."""
        return sum(self.kept)

    @property
    def seconds(self) -> float:
        """Time of the training loop in all epochs."""
        return sum(self.times)

    @property
    def seconds_in_all(self) -> float:
        """With those spent before training to select what is trained on."""
        return self.seconds + self.preparation

    @property
    def mean_noise(self) -> float | None:
        """The mean noise factor of the epochs: as if batches had been so many times smaller. None in old records."""
        return mean(self.noise) if self.noise else None

    @property
    def unevenness(self) -> float:
        """Time per sample of the slowest epoch ÷ that of the fastest: near 1 on a machine that does nothing else."""
        pace = [seconds / kept for seconds, kept in zip(self.times, self.kept, strict=True)]
        return max(pace) / min(pace)

    def judged_by(self, measure: Measure) -> RunRecord:
        """The run as if this, known after the last epoch only, had been its metric."""
        values = (*(math.nan for _ in self.values[1:]), measure.value)
        return replace(self, metric=measure.name, values=values, higher_is_better=measure.higher_is_better, further=())

    def to_json(self) -> str:
        """One line of JSON with everything but the score table.

        >>> RunRecord("full", 0, "accuracy", True, 4, (4, 4), (0.7, 0.6), (1.0, 0.5), (40.0, 50.0), 0.0).to_json()
        '{"method": "full", "seed": 0, "metric": "accuracy", ...}'
        """
        fields = asdict(self)
        del fields["scores"]
        return json.dumps(fields)

    @classmethod
    def from_json(cls, line: str) -> RunRecord:
        """The inverse of :meth:`to_json`.

        >>> run = RunRecord("full", 0, "accuracy", True, 4, (4, 4), (0.7, 0.6), (1.0, 0.5), (40.0, 50.0), 0.0)
        >>> RunRecord.from_json(run.to_json()) == run
        True
        """
        fields = {name: _frozen(value) for name, value in json.loads(line).items()}
        return cls(**{**fields, "further": tuple(Measure(*found) for found in fields.get("further", ()))})


def by_further_measures(records: Sequence[RunRecord]) -> list[list[RunRecord]]:
    """The runs judged by each of what else was measured, those that have it, a list for each measure."""
    found: dict[str, list[RunRecord]] = {}
    for run in records:
        for measure in run.further:
            found.setdefault(measure.name, []).append(run.judged_by(measure))
    return list(found.values())


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


@dataclass(frozen=True)
class Pair:
    """Two runs with one seed: on all the data, and on what a method left of it.

    The ideal speed-up is the ratio of the samples, the realised one that of the times, with what it took to select a
    subset; ``efficiency`` = realised ÷ ideal says how much of what was saved arrived on the clock. Times can be
    compared where the two took turns, so that both met the same machine; else there are none of the last two.

    >>> full = RunRecord("full", 0, "accuracy", True, 4, (4, 4), (0.7, 0.6), (1.0, 1.0), (40.0, 50.0), 0.0)
    >>> pruned = RunRecord("infobatch", 0, "accuracy", True, 4, (4, 1), (0.7, 0.6), (1.0, 0.6), (40.0, 50.0), 0.375)
    >>> pair = Pair(full, pruned)
    >>> pair.ideal, pair.realised, pair.efficiency
    (1.6, 1.25, 0.78125)
    """

    full: RunRecord
    pruned: RunRecord

    def __post_init__(self) -> None:
        if self.full.seed != self.pruned.seed:
            raise ValueError(f"a pair's runs share one seed, got {self.full.seed} and {self.pruned.seed}")

    @property
    def ideal(self) -> float:
        """Speed-up if time went with the samples alone."""
        return self.full.samples / self.pruned.samples

    @property
    def took_turns(self) -> bool:
        """Whether the times can be compared. Old records do not say, but all methods except one took turns."""
        if self.pruned.beside is None:
            return not self.pruned.method.startswith("full-shortened")
        return self.full.method in self.pruned.beside

    @property
    def realised(self) -> float | None:
        """Speed-up as measured."""
        return self.full.seconds_in_all / self.pruned.seconds_in_all if self.took_turns else None

    @property
    def efficiency(self) -> float | None:
        """Realised ÷ ideal speed-up."""
        return None if self.realised is None else self.realised / self.ideal
