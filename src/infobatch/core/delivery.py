"""Which batch is in the user's hands: torch's loader is asked, so that no loss is booked by guesswork.

A sampler knows what it has handed *out*; with workers that runs ahead of what has been *delivered*. Only the loader's
iterator knows the latter. It is found once per pass, by looking up the call stack from the sampler's ``__iter__``,
and then asked how many batches it has delivered. Nothing is patched. Two names are torch's private ones,
``_num_yielded`` and ``_index_sampler``; ``tests/core/test_delivery.py`` fails loudly when a release moves them, and
:class:`Delivery` raises rather than guess.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

from torch.utils.data import Sampler, get_worker_info
from torch.utils.data.dataloader import _BaseDataLoaderIter

_MAX_FRAMES = 12


class Delivery:
    """One pass of a loader over a sampler: how many batches it has delivered, and of which size."""

    def __init__(self, loader_iterator: Any, sampler: Sampler[int]) -> None:
        # The attributes outlive the iterator, which must be free to die with the loop (and its workers with it).
        self._attributes: dict[str, Any] = vars(loader_iterator)
        self._iterator = weakref.ref(loader_iterator)
        source = self._attributes["_index_sampler"]
        self.batch_size: int | None = None
        self.drop_last = False
        if source is sampler:
            self.batch_size = 1
        elif getattr(source, "sampler", None) is sampler:
            self.batch_size = getattr(source, "batch_size", None)
            self.drop_last = bool(getattr(source, "drop_last", False))

    @property
    def delivered(self) -> int:
        """Batches the loader has returned to its caller."""
        return int(self._attributes["_num_yielded"])

    @property
    def open(self) -> bool:
        """Whether the loader's iterator is still there: a peek's is not."""
        return self._iterator() is not None

    def obstacle(self) -> str | None:
        """Why the order of delivery cannot be told from the order of the plan, if so."""
        if not self._attributes.get("_in_order", True):  # set only with workers
            return "the loader was made with in_order=False and delivers batches as they happen to be ready"
        if not isinstance(self.batch_size, int):
            kind = type(self._attributes["_index_sampler"]).__name__
            return f"the loader takes its batches from a {kind} that regroups or re-shards train_data.sampler"
        return None


def find_delivery(sampler: Sampler[int]) -> Delivery | None:
    """The loader that is asking ``sampler`` for indices right now, or None if no torch loader is."""
    loader_iterator = _calling_loader()
    return None if loader_iterator is None else Delivery(loader_iterator, sampler)


def called_by_loader() -> bool:
    """Whether a loader or one of its worker processes is calling, rather than the user."""
    return get_worker_info() is not None or _calling_loader() is not None


def _calling_loader() -> Any:
    frame = sys._getframe(1)
    for _ in range(_MAX_FRAMES):
        caller = frame.f_locals.get("self")
        if isinstance(caller, _BaseDataLoaderIter):
            return caller
        if frame.f_back is None:
            break
        frame = frame.f_back
    return None
