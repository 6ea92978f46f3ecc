"""Which batch was delivered last: torch's loader knows it, so that no loss is matched to its samples by guesswork.

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
from collections.abc import Iterator
from multiprocessing.context import get_spawning_popen
from typing import Any

from torch.utils.data import BatchSampler, Sampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

_MAX_FRAMES = 12
_COUNTS = ("_num_yielded", "_rcvd_idx", "_task_info")
_UNKNOWN = object()


class DriftError(RuntimeError):
    """A batch's losses cannot be matched to its samples."""


class Delivery:
    """One pass of a torch loader over the sampler: how many batches it has delivered, and their size."""

    def __init__(self, loader_iterator: Any, sampler: Sampler[int]) -> None:
        # No reference to the iterator is kept, so that it and its workers die with the loop; its counts are kept then.
        self._attributes: dict[str, Any] = vars(loader_iterator)
        self._iterator = weakref.ref(loader_iterator, self._keep_counts)
        self._tasks: Any = _UNKNOWN
        check_dataset_of_loader(self._ask("_dataset"), sampler)
        self._cut_by(self._ask("_index_sampler"), sampler)
        if self.keeps_steps and type(loader_iterator).__module__.startswith("torchdata."):
            raise DriftError(
                "train_data.batches() does not work with torchdata's StatefulDataLoader, which skips batches when it "
                "goes on from its state: use torch's DataLoader; the place in the epoch is in train_data.state_dict()"
            )

    def _cut_by(self, source: Any, sampler: Sampler[int]) -> None:
        """Learn whether the batches of ``source``, which the loader takes, are cut from ``sampler`` in order."""
        self.source = type(source).__name__
        self.batch_size: int | None = None
        self.drop_last = False
        self.keeps_steps = getattr(source, "keeps_steps", False)  # batches shrink, and their number stays
        if source is sampler:
            self.batch_size = 1
        elif getattr(source, "sampler", None) is sampler and _cuts_in_order(source):
            self.batch_size, self.drop_last = source.batch_size, source.drop_last

    def _keep_counts(self, _: object) -> None:
        self._attributes = {name: self._attributes[name] for name in _COUNTS if name in self._attributes}

    def _ask(self, name: str) -> Any:
        try:
            return self._attributes[name]
        except KeyError:
            raise DriftError(
                f"this release of torch has moved {name}, which tells how many batches the loader has delivered. Let "
                "us count them instead: for batch in train_data.follow(loader): ..."
            ) from None

    def begin(self) -> None:
        """Called when the first index is taken: from now on the loader's counts are those of this pass."""
        self._tasks = self._attributes.get("_task_info")

    @property
    def delivered(self) -> int:
        """Batches the loader has returned to its caller."""
        return int(self._ask("_num_yielded"))

    @property
    def taken(self) -> int | None:
        """Batches that left the loader, delivered or lost to an error; None if the loader has no such count."""
        taken = self._attributes.get("_rcvd_idx")
        return None if taken is None else int(taken)

    @property
    def restarted(self) -> bool:
        """Whether the same (persistent) iterator has begun another pass, so that its counts are of that pass."""
        return self._tasks is not _UNKNOWN and self._attributes.get("_task_info") is not self._tasks

    @property
    def drained(self) -> bool:
        """With workers: whether all requested batches have been delivered."""
        return not self._tasks

    @property
    def open(self) -> bool:
        """Whether the pass can still go on: a loop that has ended cannot."""
        return self._iterator() is not None

    @property
    def in_order(self) -> bool:
        """Whether batches are delivered in the order in which they were requested."""
        return bool(self._attributes.get("_in_order", True))  # set only with workers

    def same_iterator(self, other: Delivery) -> bool:
        """Whether both passes are of one iterator."""
        return self._iterator() is other._iterator()

    def obstacle(self) -> str | None:
        """Why the order of delivery does not follow from the order of the plan; None if it does."""
        if not self.in_order:
            return "the loader was made with in_order=False and delivers batches as they happen to be ready"
        if self.batch_size is None:
            return f"the loader takes its batches from a {self.source} that regroups or re-shards train_data.sampler"
        return None


class Followed(Delivery):
    """One pass of any loader, whose batches we count ourselves: ``for batch in train_data.follow(loader)``.

    It uses only public names of the loader.
    """

    restarted = False
    drained = True

    def __init__(self, loader: Any, sampler: Sampler[int]) -> None:
        if hasattr(loader, "dataset"):
            check_dataset_of_loader(loader.dataset, sampler)
        self._cut_by(getattr(loader, "batch_sampler", None) or getattr(loader, "sampler", loader), sampler)
        self._loader = loader
        self._count = 0
        self._iterator = weakref.ref(self)
        self._open = True

    def batches(self) -> Iterator[Any]:
        """The loader's batches."""
        try:
            for batch in self._loader:
                self._count += 1
                yield batch
        finally:
            self._open = False

    def begin(self) -> None:
        pass

    @property
    def delivered(self) -> int:
        return self._count

    @property
    def taken(self) -> int:
        return self._count

    @property
    def open(self) -> bool:
        return self._open

    @property
    def in_order(self) -> bool:
        return bool(getattr(self._loader, "in_order", True) or not getattr(self._loader, "num_workers", 0))


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


def _cuts_in_order(source: Any) -> bool:
    """Whether a batch sampler is torch's, torchdata's or our own, not one that drops, sorts or regroups."""
    kind = type(source)
    ours = hasattr(kind, "keeps_steps")
    return ours or kind.__iter__ is BatchSampler.__iter__ or kind.__module__ == "torchdata.stateful_dataloader.sampler"


def find_delivery(sampler: Sampler[int]) -> Delivery | None:
    """The torch loader that is taking indices from ``sampler`` right now, or None if there is none."""
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
