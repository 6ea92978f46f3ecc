"""The average loss of each id: a hashed table with a fixed number of slots, 12 bytes each.

A slot holds part of its id's hash and the bin of the id's average loss, which workers read together, and the average
itself. If two ids meet in a slot, the first id stays until other ids have come eight times without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .bins import bin_of
from .shared import SharedArray

BYTES_PER_SLOT = 12
UNKNOWN = -1
_LIVES = 8
_PRINT_AT = 16  # a row, from the lowest bit: 4 bits of lives, 12 of the bin, then the part of the hash


class Ids:
    """The scores of as many ids as there are slots."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._rows = SharedArray((slots,), torch.int64)
        self._average = np.zeros(slots, np.float32)
        self.collisions = 0  # losses that found their slot held by another id
        self.held = 0

    def finder(self) -> Callable[[int], int]:
        """A function from an id's hash to its bin; UNKNOWN if it has no slot. It sees losses recorded later, too."""
        slots, row_of = self.slots, self._rows.array.item

        def find(id_hash: int) -> int:
            row: int = row_of(id_hash % slots)
            return row >> 4 & 0xFFF if row and row >> _PRINT_AT == id_hash // slots else UNKNOWN

        return find

    def find(self, id_hash: int) -> int:
        """The bin of one id."""
        return self.finder()(id_hash)

    def bins(self, hashes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The bins of ids; UNKNOWN for those without a slot."""
        rows = self._rows.array[hashes % self.slots]
        known = (rows != 0) & (rows >> _PRINT_AT == hashes // self.slots)
        return np.where(known, (rows >> 4) & 0xFFF, UNKNOWN)

    def book(self, hashes: NDArray[np.int64], loss: NDArray[np.float64]) -> None:
        """Record the losses of ids: the new average is the mean of the loss and the old average."""
        slot, prints = hashes % self.slots, hashes // self.slots
        rows = self._rows.array[slot]
        own = (rows != 0) & (rows >> _PRINT_AT == prints)
        free = np.flatnonzero(rows == 0)
        stranger = (rows != 0) & ~own
        writes = own.copy()
        writes[np.flatnonzero(stranger)[self._take_lives(slot[stranger])]] = True  # the old id has no lives left
        taken, first, place = np.unique(slot[free], return_index=True, return_inverse=True)
        writes[free] = prints[free] == prints[free][first][place]  # of several newcomers, the first one
        self.collisions += int(stranger.sum()) + int((~writes[free]).sum())
        self.held += len(taken)
        average = np.where(own, (self._average[slot] + loss) / 2, loss)
        slot, prints = slot[writes], prints[writes]
        self._average[slot] = average[writes]
        # The bin of the average as it was just written: if an id has two losses here, the last one stays.
        self._rows.array[slot] = prints << _PRINT_AT | bin_of(self._average[slot]) << 4 | _LIVES

    def _take_lives(self, slot: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Take one life for each stranger at a slot; returns for each stranger whether the old id gives up the slot."""
        distinct, place = np.unique(slot, return_inverse=True)
        count = np.bincount(place, minlength=len(distinct))
        rows = self._rows.array[distinct]
        lives = rows & 0xF
        left = np.maximum(lives - count, 0)
        self._rows.array[distinct] = rows - lives + np.maximum(left, 1)
        return np.asarray((left == 0)[place])

    def state(self) -> dict[str, Any]:
        """All values, to save."""
        table = {"rows": self._rows.state(), "average": torch.from_numpy(self._average.copy())}
        return {**table, "collisions": self.collisions, "held": self.held}

    def load(self, state: dict[str, Any]) -> None:
        """The inverse of :meth:`state`."""
        self._rows.load(state["rows"])
        np.copyto(self._average, state["average"].numpy())
        self.collisions, self.held = state["collisions"], state["held"]
