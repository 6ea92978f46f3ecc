"""One global plan, sliced: every kept sample on exactly one rank, equally many on each.

Rank r takes every world-th entry from r on, so that step k of all ranks together is the k-th block of the plan, as one
process with the world-fold batch would see it. Where the plan does not divide, the ranks that come short get the plan's
first sample once more, with weight 0; the mean of that last step is taken over the real samples of all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .shuffle import Order


@dataclass(frozen=True)
class Slice:
    """The part of rank ``rank`` of what is left of a plan from entry ``start`` on.

    >>> [Slice(Order(np.arange(5)), rank, world=2)[:].tolist() for rank in range(2)]
    [[0, 2, 4], [1, 3, 0]]
    """

    order: Order
    rank: int = 0
    world: int = 1
    start: int = 0

    def __len__(self) -> int:
        return -(-self._left // self.world)

    def __getitem__(self, wanted: slice) -> NDArray[np.integer]:
        first, last, _ = wanted.indices(len(self))
        offset = self.start + self.rank
        own = self.order[offset + first * self.world : offset + last * self.world : self.world]
        if self.padded and first < last == len(self):
            own = np.append(own, self.padding)
        return own

    @property
    def padded(self) -> bool:
        """Whether this rank's last entry is padding."""
        return self.rank >= self.world - self.global_padding

    @property
    def global_padding(self) -> int:
        """How many ranks are padded."""
        return -self._left % self.world

    @property
    def padding(self) -> int:
        """The sample that padded ranks get once more: the same wherever the epoch was resumed."""
        return int(self.order[:1][0])

    @property
    def _left(self) -> int:
        return len(self.order) - self.start
