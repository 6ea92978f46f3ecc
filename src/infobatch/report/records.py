"""What is told of a training run while it goes on, and what is kept of it afterwards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

_NAMES = {"full": "Full data", "infobatch": "InfoBatch"}


def title(method: str) -> str:
    """How a method is called in front of readers; one without a name of its own goes by its key.

    >>> title("infobatch"), title("random")
    ('InfoBatch', 'random')
    """
    return _NAMES.get(method, method)


@dataclass(frozen=True)
class Tick:
    """Where a run is: ``done`` of the epoch's ``kept`` of ``total`` samples, its mean loss, the run's time so far."""

    method: str
    seed: int
    epoch: int
    epochs: int
    done: int
    kept: int
    total: int
    loss: float
    seconds: float


@dataclass(frozen=True)
class RunRecord:
    """One training run: on how much, how long, how good, and where.

    ``kept``, ``losses`` and ``times`` hold one number per epoch: the samples trained on, of ``total``; the mean loss
    over all samples, as estimated by the weighted losses of those; the seconds of the training loop. ``saving`` is
    the share of full training that was saved, ``scores`` the score table after training.
    """

    method: str
    seed: int
    total: int
    kept: tuple[int, ...]
    losses: tuple[float, ...]
    times: tuple[float, ...]
    accuracy: float
    saving: float
    torch: str
    cpus: int
    scores: Sequence[float] = field(default=(), repr=False, compare=False)

    @property
    def samples(self) -> int:
        """Samples trained on in all epochs."""
        return sum(self.kept)

    @property
    def seconds(self) -> float:
        """Time of the training loop in all epochs."""
        return sum(self.times)

    @property
    def unevenness(self) -> float:
        """Time per sample of the slowest epoch ÷ that of the fastest: near 1 on a machine that does nothing else."""
        pace = [seconds / kept for seconds, kept in zip(self.times, self.kept, strict=True)]
        return max(pace) / min(pace)

    def to_json(self) -> str:
        """One line of JSON with everything but the score table.

        >>> run = RunRecord("full", 0, 4, (4, 4), (0.7, 0.6), (1.0, 0.5), 0.5, 0.0, "2.13.0", 2, scores=(0.1,) * 4)
        >>> run.to_json()
        '{"method": "full", "seed": 0, "samples": 8, "seconds": 1.5, "total": 4, "kept": [4, 4], ...}'
        """
        fields = asdict(self)
        del fields["scores"]
        totals = {"samples": self.samples, "seconds": self.seconds}
        return json.dumps({"method": self.method, "seed": self.seed} | totals | fields)


@dataclass(frozen=True)
class Pair:
    """Two runs with one seed: on all the data, and on what a method left of it.

    The ideal speed-up is the ratio of the samples, the realised one that of the times; ``efficiency`` = realised ÷
    ideal says how much of what was saved arrived on the clock.

    >>> full = RunRecord("full", 0, 4, (4, 4), (0.7, 0.6), (1.0, 1.0), 0.5, 0.0, "2.13.0", 2)
    >>> pruned = RunRecord("infobatch", 0, 4, (4, 1), (0.7, 0.6), (1.0, 0.6), 0.5, 0.375, "2.13.0", 2)
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
    def realised(self) -> float:
        """Speed-up as measured."""
        return self.full.seconds / self.pruned.seconds

    @property
    def efficiency(self) -> float:
        """Realised ÷ ideal speed-up."""
        return self.realised / self.ideal
