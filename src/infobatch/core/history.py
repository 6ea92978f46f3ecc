"""The scores of every epoch, one byte per sample; kept only if the user asks for it.

A byte holds a score on a log scale. An epoch whose scores are all 0 or above has 253 steps from 1e-6 to 1e6, each
11.5 % above the one before; an epoch with scores below 0 has 126 steps on each side.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

NOT_TRAINED, NO_SCORE, NO_SIZE = 0, 1, 2  # codes without a size: left out; not a number; 0, or too small
LOW, HIGH = -6.0, 6.0  # powers of ten of the least and the largest size that has a code of its own
LEVELS, SIGNED_LEVELS = 253, 126


def encode(scores: NDArray[np.float32]) -> tuple[NDArray[np.uint8], bool]:
    """(a code per score, whether the codes have a sign): never :data:`NOT_TRAINED`.

    >>> codes, signed = encode(np.array([np.nan, 0.0, 1e-6, 1.0, 1e6], np.float32))
    >>> codes.tolist(), signed
    ([1, 2, 3, 129, 255], False)
    """
    size = np.abs(scores)
    known = np.isfinite(scores)
    signed = bool((scores[known] < 0).any())
    levels = SIGNED_LEVELS if signed else LEVELS
    with np.errstate(divide="ignore", invalid="ignore"):
        step = np.rint((np.log10(size) - LOW) * ((levels - 1) / (HIGH - LOW)))
        codes = np.where(step < 0, NO_SIZE, NO_SIZE + 1 + np.clip(step, 0, levels - 1))
    if signed:
        codes += np.where((scores < 0) & (codes > NO_SIZE), levels, 0)
    return np.where(known, codes, NO_SCORE).astype(np.uint8), signed


def sizes(signed: bool) -> NDArray[np.float32]:
    """The score of each of the 256 codes; NaN for codes without a score."""
    levels = SIGNED_LEVELS if signed else LEVELS
    values = np.full(256, np.nan, np.float32)
    values[NO_SIZE] = 0
    steps = 10.0 ** np.linspace(LOW, HIGH, levels)
    values[NO_SIZE + 1 : NO_SIZE + 1 + levels] = steps
    if signed:
        values[NO_SIZE + 1 + levels : NO_SIZE + 1 + 2 * levels] = -steps
    return values


def decode(codes: NDArray[np.uint8], signed: bool) -> NDArray[np.float32]:
    """The scores of these codes; NaN for a code without a score."""
    decoded: NDArray[np.float32] = sizes(signed)[codes]
    return decoded


def in_bytes(count: int) -> str:
    """A number of bytes as text.

    >>> in_bytes(900), in_bytes(12_000_000)
    ('900 bytes', '12.0 MB')
    """
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


@dataclass(repr=False)
class ScoreHistory:
    """The scores of the last ``rows`` epochs, of ``size`` samples each: ``rows`` · ``size`` bytes.

    A sample counts as trained if the run counts it as done; a loss that was not finite leaves its old score.
    Epoch e is in row e modulo ``rows``, so that it replaces the oldest epoch.

    >>> history = ScoreHistory(rows=2, size=3)
    >>> for epoch in range(3):
    ...     history.write(epoch, np.array([0, 2]), np.array([1.0, 5.0, 10.0 ** epoch], np.float32))
    >>> history.epochs_known()
    [1, 2]
    >>> history.of(2).tolist()
    [1.0, nan, 100.0...]
    """

    rows: int
    size: int
    codes: NDArray[np.uint8] = field(init=False)
    epochs: NDArray[np.int64] = field(init=False)  # of each row; -1: none yet
    signed: NDArray[np.uint8] = field(init=False)

    def __post_init__(self) -> None:
        self.codes = np.zeros((self.rows, self.size), np.uint8)
        self.epochs = np.full(self.rows, -1, np.int64)
        self.signed = np.zeros(self.rows, np.uint8)

    def __repr__(self) -> str:
        return f"history of {self.rows} epochs in {in_bytes(self.rows * self.size)}"

    def write(self, epoch: int, trained: NDArray[np.integer], scores: NDArray[np.float32]) -> None:
        """Keep the scores of the samples that were trained in ``epoch``, from the table of all scores.

        Later epochs are cleared: training has gone back to this one.
        """
        self._clear(self.epochs >= epoch)
        row = epoch % self.rows
        self._clear(np.arange(self.rows) == row)
        self.codes[row, trained], self.signed[row] = encode(scores[trained])
        self.epochs[row] = epoch

    def amend(self, epoch: int, trained: NDArray[np.integer], scores: NDArray[np.float32]) -> None:
        """Add samples whose losses came after the next epoch had begun, if the epoch is still kept."""
        if epoch in self.epochs:
            row = epoch % self.rows
            before = np.flatnonzero(self.codes[row])
            values = self.of(epoch)
            values[trained] = scores[trained]
            both = np.union1d(before, trained)
            self.codes[row, both], self.signed[row] = encode(values[both])

    def epochs_known(self) -> list[int]:
        """The epochs that are kept, ascending."""
        known: list[int] = np.sort(self.epochs[self.epochs >= 0]).tolist()
        return known

    def codes_of(self, epoch: int) -> NDArray[np.uint8]:
        """The codes of one epoch."""
        codes: NDArray[np.uint8] = self.codes[epoch % self.rows]
        return codes

    def of(self, epoch: int) -> NDArray[np.float32]:
        """The scores of one epoch; NaN for a sample that was left out or had no score."""
        return decode(self.codes_of(epoch), bool(self.signed[epoch % self.rows]))

    def take_over(self, other: ScoreHistory) -> None:
        """Copy another history's last epochs, as many as there is room for."""
        self._clear(np.ones(self.rows, bool))
        for epoch in other.epochs_known()[-self.rows :]:
            row, source = epoch % self.rows, epoch % other.rows
            self.codes[row], self.signed[row] = other.codes[source], other.signed[source]
            self.epochs[row] = epoch

    def _clear(self, rows: NDArray[np.bool_]) -> None:
        self.codes[rows], self.epochs[rows], self.signed[rows] = NOT_TRAINED, -1, 0
