"""Statistics: samples trained on and saved, per epoch and in all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class EpochStats:
    """One epoch: ``total`` samples without pruning, ``kept`` in the plan, ``seen`` by ``update`` so far.

    ``noise`` is the noise factor V: training was as if the batch were V times smaller. None until the epoch is over.
    """

    epoch: int
    total: int
    kept: int
    seen: int
    noise: float | None = None

    @property
    def saved(self) -> int:
        """Samples left out by the plan."""
        return self.total - self.kept


class History(dict[int, EpochStats]):
    """The statistics of the epochs trained so far, by epoch number."""

    def enter(self, epoch: EpochStats) -> None:
        """Add or replace an epoch's statistics; an epoch without any sample trained is left out."""
        if epoch.seen:
            self[epoch.epoch] = epoch

    def change(self, epoch: int, **values: Any) -> None:
        """Change some of an epoch's values, if it has been entered."""
        if epoch in self:
            self[epoch] = replace(self[epoch], **values)

    def in_order(self) -> tuple[EpochStats, ...]:
        """The epochs, ascending."""
        return tuple(self[epoch] for epoch in sorted(self))

    def saved_before(self, epoch: int) -> int:
        """Samples left out in all epochs before this one."""
        return sum(e.saved for e in self.values() if e.epoch < epoch)

    def expected_saving(self, latest: EpochStats, pruning: range, num_epochs: int) -> float | None:
        """The saving if later epochs prune the same share as the last pruned epoch; None before the first one.

        ``latest`` is the epoch that was planned last, which may not have begun.
        """
        known = self if latest.epoch in self else {**self, latest.epoch: latest}
        pruned = [known[epoch] for epoch in sorted(known) if epoch in pruning]
        if not pruned:
            return None
        to_come = len(range(pruned[-1].epoch + 1, pruning.stop))
        saved = sum(e.saved / e.total for e in pruned)
        return (saved + to_come * pruned[-1].saved / pruned[-1].total) / num_epochs


@dataclass(frozen=True)
class Stats:
    """The whole training so far."""

    epochs: tuple[EpochStats, ...]
    num_epochs: int
    size: int
    expected_saving: float  # share of full training that will be saved in all, estimated from the epochs so far
    rejected: int  # losses that were NaN or infinite
    seconds: float  # spent in the library itself

    @property
    def seen(self) -> int:
        """Samples trained on."""
        return sum(e.seen for e in self.epochs)

    @property
    def saved(self) -> int:
        """Samples left out."""
        return sum(e.saved for e in self.epochs)

    @property
    def full(self) -> int:
        """Samples of a training with all data in every epoch."""
        return self.size * self.num_epochs

    @property
    def saving(self) -> float:
        """``saved`` as a share of ``full``."""
        return self.saved / self.full

    @property
    def noise(self) -> float:
        """The mean noise factor V of the finished epochs: as if batches had been V times smaller."""
        known = [e.noise for e in self.epochs if e.noise is not None]
        return sum(known) / len(known) if known else 1.0

    def __str__(self) -> str:
        lines = [f"{'epoch':>5} {'seen':>12} {'saved':>12} {'kept':>7} {'noise':>6}"]
        lines += [
            f"{e.epoch:>5} {e.seen:>12,} {e.saved:>12,} {e.kept / max(e.total, 1):>7.1%} "
            f"{'' if e.noise is None else f'{e.noise:.2f}':>6}"
            for e in self.epochs
        ]
        lines.append(f"{'all':>5} {self.seen:>12,} {self.saved:>12,}")
        lines.append(
            f"saved {self.saving:.1%} of full training ({self.num_epochs} epochs of {self.size:,} samples); "
            f"expected in all: {self.expected_saving:.1%}"
        )
        lines.append(f"noise: as if batches had been {self.noise:.2f} times smaller, on average over the epochs")
        lines.append(f"time spent in infobatch itself: {self.seconds:.3f} s")
        if self.rejected:
            lines.append(f"losses that were NaN or infinite, and not stored: {self.rejected:,}")
        return "\n".join(lines)
