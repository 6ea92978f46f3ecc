"""Which batch is in the user's hands: torch's loader is asked, so that no loss is booked by guesswork.

A sampler knows what it has handed *out*; with workers that runs ahead of what has been *delivered*. Only the loader's
iterator knows the latter. It is found once per pass, by looking up the call stack from the sampler's ``__iter__``,
and then asked how many batches it has delivered. Nothing is patched. Some names are torch's private ones
(``_dataset``, ``_num_yielded``, ``_index_sampler``; with workers ``_in_order``, ``_rcvd_idx``, ``_task_info``).
``tests/core/test_delivery.py`` fails loudly when a release moves them, and :class:`Delivery` raises rather than guess.
:class:`Followed` counts a loader's batches by public names only.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from multiprocessing.context import get_spawning_popen
from typing import Any, Protocol

from torch.utils.data import BatchSampler, Sampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

_MAX_FRAMES = 12
_COUNTS = ("_num_yielded", "_rcvd_idx", "_task_info")
_UNKNOWN = object()


class DriftError(RuntimeError):
    """A batch's losses cannot be matched to its samples."""


class Pass(Protocol):
    """What is asked of a loader in one pass over the sampler."""

    source: str  # what the loader takes its batches from
    batch_size: int | None  # None: not known
    drop_last: bool

    @property
    def delivered(self) -> int:
        """Batches the loader has returned to its caller."""

    @property
    def taken(self) -> int | None:
        """Batches that left the loader, delivered or lost to an error; None: not known."""

    @property
    def open(self) -> bool:
        """Whether the pass can still go on: a loop that has ended cannot."""

    @property
    def restarted(self) -> bool:
        """Whether the same (persistent) iterator has begun another pass, and so counts that one."""

    @property
    def drained(self) -> bool:
        """With workers: whether everything that was asked for has been delivered."""

    def begin(self) -> None:
        """The first index is being taken: from now on the loader's books are those of this pass."""

    def same_iterator(self, other: Any) -> bool:
        """Whether both passes are of one iterator."""

    def obstacle(self) -> str | None:
        """Why the order of delivery cannot be told from the order of the plan, if so."""


class Delivery:
    """One pass of a torch loader over a sampler: a :class:`Pass` that asks the loader's iterator."""

    def __init__(self, loader_iterator: Any, sampler: Sampler[int]) -> None:
        # The iterator is not held, so that it dies with the loop, and its workers with it; its counts are kept then.
        self._attributes: dict[str, Any] = vars(loader_iterator)
        self._iterator = weakref.ref(loader_iterator, self._keep_counts)
        self._tasks: Any = _UNKNOWN
        check_dataset_of_loader(self._ask("_dataset"), sampler)
        source = self._ask("_index_sampler")
        self.source = type(source).__name__
        self.batch_size, self.drop_last = _batches(source, sampler)

    def _keep_counts(self, _: object) -> None:
        self._attributes = {name: self._attributes[name] for name in _COUNTS if name in self._attributes}

    def begin(self) -> None:
        self._tasks = self._attributes.get("_task_info")

    @property
    def delivered(self) -> int:
        return int(self._ask("_num_yielded"))

    def _ask(self, name: str) -> Any:
        try:
            return self._attributes[name]
        except KeyError:
            raise DriftError(
                f"this release of torch has moved {name}, by which the loader is asked what it has delivered. Let us "
                "count it instead: for batch in train_data.follow(loader): ..."
            ) from None

    @property
    def taken(self) -> int | None:
        taken = self._attributes.get("_rcvd_idx")
        return None if taken is None else int(taken)

    @property
    def restarted(self) -> bool:
        return self._tasks is not _UNKNOWN and self._attributes.get("_task_info") is not self._tasks

    @property
    def drained(self) -> bool:
        return not self._tasks

    def same_iterator(self, other: Any) -> bool:
        return isinstance(other, Delivery) and self._iterator() is other._iterator()

    @property
    def open(self) -> bool:
        return self._iterator() is not None

    def obstacle(self) -> str | None:
        return _obstacle(self._attributes.get("_in_order", True), self)  # set only with workers


class Followed:
    """A loader whose batches are counted as they pass by: ``for batch in train_data.follow(loader)``."""

    def __init__(self, loader: Any, sampler: Sampler[int], announce: Callable[[Pass], None]) -> None:
        self._loader = loader
        self._sampler = sampler
        self._announce = announce

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        counted = CountedPass(self._loader, self._sampler)
        self._announce(counted)
        try:
            for batch in self._loader:
                counted.delivered += 1
                yield batch
        finally:
            counted.open = False


class CountedPass:
    """One pass of a followed loader: a :class:`Pass` that counts, and asks for public names only."""

    restarted = False
    drained = True

    def __init__(self, loader: Any, sampler: Sampler[int]) -> None:
        if hasattr(loader, "dataset"):
            check_dataset_of_loader(loader.dataset, sampler)
        source = getattr(loader, "batch_sampler", None) or getattr(loader, "sampler", loader)
        self.source = type(source).__name__
        self.batch_size, self.drop_last = _batches(source, sampler)
        self.delivered = 0
        self.open = True
        self._in_order = getattr(loader, "in_order", True) or not getattr(loader, "num_workers", 0)

    @property
    def taken(self) -> int:
        return self.delivered

    def begin(self) -> None:
        pass

    def same_iterator(self, other: Any) -> bool:
        return self is other

    def obstacle(self) -> str | None:
        return _obstacle(self._in_order, self)


def check_dataset_of_loader(dataset: Any, sampler: Any) -> None:
    """Raise unless a loader reads the data set whose indices ``sampler`` hands out."""
    ours = getattr(sampler, "dataset", dataset)
    if dataset is ours or dataset is getattr(ours, "dataset", ours):
        return
    raise DriftError(
        f"the loader takes indices from train_data.sampler, but reads a {type(dataset).__name__}, whose samples have "
        "other indices, so that every loss would go to a wrong sample. Wrap the data that you train on, "
        "train_data = InfoBatch(Subset(data, indices), ...), and give that to the loader: "
        "DataLoader(train_data, sampler=train_data.sampler, ...)"
    )


def _batches(source: Any, sampler: Sampler[int]) -> tuple[int | None, bool]:
    """(batch size, drop_last) of the batches that are cut from ``sampler`` in order; None where they are not."""
    if source is sampler:
        return 1, False
    if getattr(source, "sampler", None) is sampler and _cuts_in_order(source):
        return source.batch_size, source.drop_last
    return None, False


def _cuts_in_order(source: Any) -> bool:
    """Whether a batch sampler is torch's or torchdata's own, not one that drops, sorts or regroups."""
    kind = type(source)
    return kind.__iter__ is BatchSampler.__iter__ or kind.__module__ == "torchdata.stateful_dataloader.sampler"


def _obstacle(in_order: bool, loader: Pass) -> str | None:
    if not in_order:
        return "the loader was made with in_order=False and delivers batches as they happen to be ready"
    if loader.batch_size is None:
        return f"the loader takes its batches from a {loader.source} that regroups or re-shards train_data.sampler"
    return None


def find_delivery(sampler: Sampler[int]) -> Delivery | None:
    """The loader that is asking ``sampler`` for indices right now, or None if no torch loader is."""
    loader_iterator = _calling_loader()
    return None if loader_iterator is None else Delivery(loader_iterator, sampler)


def spawns_worker() -> bool:
    """Whether a loader is starting a worker process right now, which needs the samples and nothing else."""
    return get_spawning_popen() is not None and _calling_loader() is not None


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
