"""Which batch is in the user's hands: torch's loader is asked, so that no loss is booked by guesswork.

A sampler knows what it has handed *out*; with workers that runs ahead of what has been *delivered*. Only the loader's
iterator knows the latter. It is found once per pass, by looking up the call stack from the sampler's ``__iter__``,
and then asked how many batches it has delivered. Nothing is patched. Some names are torch's private ones
(``_num_yielded``, ``_index_sampler``; with workers ``_in_order``, ``_rcvd_idx``, ``_task_info``).
``tests/core/test_delivery.py`` fails loudly when a release moves them, and :class:`Delivery` raises rather than guess.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

from torch.utils.data import BatchSampler, Sampler, get_worker_info
from torch.utils.data.dataloader import _BaseDataLoaderIter

_MAX_FRAMES = 12
_COUNTS = ("_num_yielded", "_rcvd_idx", "_task_info")
_UNKNOWN = object()


class Delivery:
    """One pass of a loader over a sampler: how many batches it has delivered, and of which size."""

    def __init__(self, loader_iterator: Any, sampler: Sampler[int]) -> None:
        # The iterator is not held, so that it dies with the loop, and its workers with it; its counts are kept then.
        self._attributes: dict[str, Any] = vars(loader_iterator)
        self._iterator = weakref.ref(loader_iterator, self._keep_counts)
        self._tasks: Any = _UNKNOWN
        source = self._attributes["_index_sampler"]
        self.source = type(source).__name__
        self.batch_size: int | None = None
        self.drop_last = False
        if source is sampler:
            self.batch_size = 1
        elif getattr(source, "sampler", None) is sampler and _cuts_in_order(source):
            self.batch_size, self.drop_last = source.batch_size, source.drop_last

    def _keep_counts(self, _: object) -> None:
        self._attributes = {name: self._attributes[name] for name in _COUNTS if name in self._attributes}

    def begin(self) -> None:
        """The first index is being taken: from now on the loader's books are those of this pass."""
        self._tasks = self._attributes.get("_task_info")

    @property
    def delivered(self) -> int:
        """Batches the loader has returned to its caller."""
        return int(self._attributes["_num_yielded"])

    @property
    def taken(self) -> int | None:
        """Batches that left the loader, delivered or lost to an error; None without workers."""
        taken = self._attributes.get("_rcvd_idx")
        return None if taken is None else int(taken)

    @property
    def restarted(self) -> bool:
        """Whether the same (persistent) iterator has begun another pass, and so counts that one."""
        return self._tasks is not _UNKNOWN and self._attributes.get("_task_info") is not self._tasks

    @property
    def drained(self) -> bool:
        """With workers: whether everything that was asked for has been delivered."""
        return not self._tasks

    def same_iterator(self, other: Delivery) -> bool:
        """Whether both passes are of one iterator."""
        return self._iterator() is other._iterator()

    @property
    def open(self) -> bool:
        """Whether the loader's iterator is still there: a peek's is not."""
        return self._iterator() is not None

    def obstacle(self) -> str | None:
        """Why the order of delivery cannot be told from the order of the plan, if so."""
        if not self._attributes.get("_in_order", True):  # set only with workers
            return "the loader was made with in_order=False and delivers batches as they happen to be ready"
        if self.batch_size is None:
            return f"the loader takes its batches from a {self.source} that regroups or re-shards train_data.sampler"
        return None


def _cuts_in_order(source: Any) -> bool:
    """Whether a batch sampler is torch's or torchdata's own, not one that drops, sorts or regroups."""
    kind = type(source)
    return kind.__iter__ is BatchSampler.__iter__ or kind.__module__ == "torchdata.stateful_dataloader.sampler"


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
