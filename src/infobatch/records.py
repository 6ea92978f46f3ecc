"""The progress of a training run while it goes on, and the record that is kept of it afterwards."""

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
# Edges of the histogram's bins. Scores span many powers of ten; those outside count in the first or last bin.
SCORE_EDGES: tuple[float, ...] = tuple(10 ** (k / 6) for k in range(-36, 13))


def title(method: str) -> str:
    """A method's name in tables and on pages; a method without a name of its own goes by its key.

    >>> title("infobatch"), title("ucb")
    ('InfoBatch', 'ucb')
    """
    return _NAMES.get(method, method)


def options(method: str) -> dict[str, str]:
    """The options in a method's label, as text.

    >>> options("infobatch-adaptive:noise=0.2,steps=stay"), options("infobatch")
    ({'noise': '0.2', 'steps': 'stay'}, {})
    """
    settings = method.partition(":")[2].split(",")
    return {key: value for key, equals, value in (setting.partition("=") for setting in settings) if equals}


@dataclass(frozen=True)
class Tick:
    """The progress of a run: ``done`` of the epoch's ``kept`` of ``total`` samples, its mean loss, the time so far.

    ``saving`` is the share of the whole training that the run is now expected to save.
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
    """A further measure beside the metric, taken once, after training."""

    name: str
    value: float
    higher_is_better: bool


@dataclass(frozen=True)
class RunRecord:
    """One training run: its samples, times, losses and metric, and where it was made.

    Lists with one entry per epoch: ``kept``, the samples trained on, of ``total``; ``losses``, the mean loss over all
    samples, estimated from the weighted losses of those trained on; ``times``, the seconds of the training loop;
    ``values``, the metric on held-out data; ``histograms``, the number of scores between each two ``SCORE_EDGES``; and
    ``noise``, the noise factor (how many times smaller batches would be as noisy). The last two are empty in old
    records.

    ``saving`` is the share of full training that was saved, ``overhead`` the seconds spent in the library itself,
    ``preparation`` the seconds spent before training to select a subset or, in a function of the user's own, outside
    of its epochs. ``beside`` names the methods that took turns with this one, an epoch each (in a function of the
    user's own: a whole run each); it is None in old records. ``hardest`` lists samples with their scores,
    ``most_pruned`` samples with how often they were left out. ``further`` holds further measures taken after training,
    ``scores`` the score table at the end.
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
        """The number of samples trained on, over all epochs."""
        return sum(self.kept)

    @property
    def seconds(self) -> float:
        """Seconds of the training loop, over all epochs."""
        return sum(self.times)

    @property
    def seconds_in_all(self) -> float:
        """Seconds of the training loop and of the preparation before it."""
        return self.seconds + self.preparation

    @property
    def mean_noise(self) -> float | None:
        """The mean noise factor of the epochs; 1.2: as if batches were 1.2 times smaller. None in old records."""
        return mean(self.noise) if self.noise else None

    @property
    def unevenness(self) -> float:
        """Time per sample of the slowest epoch ÷ that of the fastest: near 1 on a machine with no other work."""
        pace = [seconds / kept for seconds, kept in zip(self.times, self.kept, strict=True)]
        return max(pace) / min(pace)

    def judge_by(self, measure: Measure) -> RunRecord:
        """The run with this measure as its metric; it is known after the last epoch only."""
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
        fields = {name: _freeze(value) for name, value in json.loads(line).items()}
        return cls(**{**fields, "further": tuple(Measure(*parts) for parts in fields.get("further", ()))})


def group_by_further_measure(records: Sequence[RunRecord]) -> list[list[RunRecord]]:
    """For each further measure, the runs that have it, judged by it."""
    groups: dict[str, list[RunRecord]] = {}
    for run in records:
        for measure in run.further:
            groups.setdefault(measure.name, []).append(run.judge_by(measure))
    return list(groups.values())


def _freeze(value: Any) -> Any:
    return tuple(map(_freeze, value)) if isinstance(value, list) else value


@dataclass(frozen=True)
class Pair:
    """Two runs with the same seed: one on full data, one on the samples that a method kept.

    ``ideal`` is the ratio of the samples, ``realised`` the ratio of the times (with the time to select a subset), and
    ``efficiency`` = realised ÷ ideal: how much of the saving shows up on the clock. Times can be compared only where
    the two runs took turns on the same machine; otherwise ``realised`` and ``efficiency`` are None.

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
            raise ValueError(
                f"full and pruned must share one seed, got {self.full.seed} and {self.pruned.seed}: pair runs by seed"
            )

    @property
    def ideal(self) -> float:
        """The speed-up if time depended on the number of samples alone."""
        return self.full.samples / self.pruned.samples

    @property
    def took_turns(self) -> bool:
        """Whether the times can be compared. Old records lack this: there all methods but full-shortened took turns."""
        if self.pruned.beside is None:
            return not self.pruned.method.startswith("full-shortened")
        return self.full.method in self.pruned.beside

    @property
    def realised(self) -> float | None:
        """The measured speed-up; None where the runs did not take turns."""
        return self.full.seconds_in_all / self.pruned.seconds_in_all if self.took_turns else None

    @property
    def efficiency(self) -> float | None:
        """Realised ÷ ideal speed-up; None where the runs did not take turns."""
        return None if self.realised is None else self.realised / self.ideal
