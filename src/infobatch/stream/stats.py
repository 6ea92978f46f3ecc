"""Statistics of a stream: samples let through, samples they stand for, and how much noise that cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class KeyStats:
    """One key: samples trained on, samples of the stream they stand for, its probability and its gradient's size."""

    name: str
    trained: int
    stands_for: float
    keep: float
    size: float


@dataclass(frozen=True)
class StreamStats:
    """A stream so far, on all ranks up to their last exchange."""

    trained: int
    stands_for: float  # samples of the stream, estimated from the weights of those trained on
    noise: float  # the noise factor V, estimated from the losses so far; NaN before any
    rejected: int  # losses that were NaN or infinite
    keys: tuple[KeyStats, ...]
    keys_without_room: int
    collisions: int
    ids_held: int
    slots: int

    @property
    def saving(self) -> float:
        """The share of the stream that was left out."""
        return 1 - self.trained / self.stands_for if self.stands_for > 0 else 0.0

    def __str__(self) -> str:
        if not self.trained:
            return "stream: no loss has come back yet"
        lines = [
            f"stream: trained on {self.trained:,} samples, which stand for about {self.stands_for:,.0f}: "
            f"{self.saving:.1%} left out, noise factor {self.noise:.3f}"
        ]
        if self.keys:
            width = max(len(key.name) for key in self.keys)
            lines += [
                f"  {key.name:{width}}  trained {key.trained:>9,} of about {key.stands_for:>11,.0f}, "
                f"now kept {key.keep:.2f}, squared gradient {key.size:.3g}"
                for key in sorted(self.keys, key=lambda key: -key.stands_for)
            ]
        if self.keys_without_room:
            lines.append(
                f"  {self.keys_without_room:,} more keys found all {self.slots:,} slots taken, and are kept whole: "
                "use more slots, or a coarser key"
            )
        if self.ids_held:
            lines.append(f"  {self.ids_held:,} of {self.slots:,} slots hold an id; {self.collisions:,} losses collided")
        if self.rejected:
            lines.append(f"  {self.rejected:,} losses were not finite, and are not counted")
        return "\n".join(lines)


@dataclass
class Totals:
    """Sums over all losses that came back."""

    trained: int = 0
    stands_for: float = 0.0  # Σ w
    size: float = 0.0  # Σ w·m, that of all samples
    rescaled: float = 0.0  # Σ w²·m, that of all samples over their probabilities
    rejected: int = 0
    lowest: float = 0.0  # loss

    @property
    def noise(self) -> float:
        """The noise factor V = Σ(m/π) / Σ m of the whole stream so far."""
        if not self.trained:
            return math.nan
        return self.rescaled / self.size if self.size > 0 else 1.0

    def plus(self, sums: list[float]) -> Totals:
        """These totals plus the sums of more losses, as returned by :func:`sums_of`."""
        trained, stands_for, size, rescaled = sums
        return replace(
            self,
            trained=self.trained + int(trained),
            stands_for=self.stands_for + stands_for,
            size=self.size + size,
            rescaled=self.rescaled + rescaled,
        )


def sums_of(size: NDArray[np.float64], weight: NDArray[np.float64]) -> list[float]:
    """The number of losses, Σ w, Σ w·m and Σ w²·m."""
    return [float(len(size)), float(weight.sum()), float(weight @ size), float(np.square(weight) @ size)]
