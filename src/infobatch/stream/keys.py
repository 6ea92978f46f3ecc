"""The group number of each key, counted in the order in which the first losses of keys came back.

The main process numbers the keys. Workers look a number up by the key's hash and then keep it; a worker also writes the
key's name into the group's own row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .shared import SharedArray

UNKNOWN = -1
_NAME = 40  # bytes of a key's name that are kept


class Keys:
    """Numbers of up to ``slots`` keys, in an open-addressed table of their hashes."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._places = SharedArray((2 * slots,), torch.int64, UNKNOWN)  # the hash in each place
        self._numbers = SharedArray((2 * slots,), torch.int32, UNKNOWN)
        self._names = SharedArray((slots, _NAME), torch.uint8)
        self._known: dict[int, int] = {}  # in the main process: hash -> number
        self.without_room: set[int] = set()  # hashes of keys that found the table full

    def __len__(self) -> int:
        return len(self._known)

    # -- in the main process -------------------------------------------------------------------------------------

    def number(self, hashes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of keys; UNKNOWN for a key that has none yet."""
        distinct, inverse = np.unique(hashes, return_inverse=True)
        numbers = [self._known.get(key, UNKNOWN) for key in distinct.tolist()]
        return np.asarray(numbers, np.int64)[inverse]

    def enter(self, hashes: list[int]) -> None:
        """Number new keys, in this order; keys without room stay unknown and are counted in ``without_room``."""
        places, size = self._places.array, len(self._places.array)
        for key in hashes:
            if key in self._known:
                continue
            if len(self._known) == self.slots:
                self.without_room.add(key)
                continue
            at = key % size
            while places[at] != UNKNOWN:
                at = (at + 1) % size
            self._known[key] = self._numbers.array[at] = len(self._known)
            places[at] = key  # written last: workers see the key from now on

    def names(self) -> list[str]:
        """The names of the keys, by number."""
        rows = self._names.array[: len(self._known)]
        names = [bytes(row[row > 0]).decode(errors="ignore") for row in rows]
        return [name or f"#{key:x}" for name, key in zip(names, self._known, strict=True)]

    def state(self) -> dict[str, Any]:
        """All values, to save."""
        hashes = torch.tensor(list(self._known), dtype=torch.int64)
        return {"hashes": hashes, "names": self._names.state(), "without room": sorted(self.without_room)}

    def load(self, state: dict[str, Any]) -> None:
        """The inverse of :meth:`state`."""
        self._places.array[:] = UNKNOWN
        self._known.clear()
        self.enter(state["hashes"].tolist())
        self._names.load(state["names"])
        self.without_room = set(state["without room"])

    # -- in a worker ---------------------------------------------------------------------------------------------

    def find(self, key_hash: int, key: Any) -> int:
        """The number of a key, once its first losses came back; UNKNOWN before."""
        places, size = self._places.array, len(self._places.array)
        at = key_hash % size
        while (there := places[at]) != UNKNOWN:
            if there == key_hash:
                number = int(self._numbers.array[at])
                text = str(key).encode()[:_NAME]
                self._names.array[number, : len(text)] = np.frombuffer(text, np.uint8)
                return number
            at = (at + 1) % size
        return UNKNOWN
