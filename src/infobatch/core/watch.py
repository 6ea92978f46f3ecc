"""Never the wrong sample: every batch that comes back must be the next one that was handed out."""

from __future__ import annotations

import warnings
from typing import Any

from torch.utils.data import Sampler

from .delivery import Delivery, find_delivery

REMEDY = (
    "Call update() exactly once for every batch, in the loader's order; or say which samples a batch holds: "
    "InfoBatch(..., index_key=...) puts the index into the batch, update(loss, index) takes it back"
)


class DriftError(RuntimeError):
    """A batch's losses cannot be matched to its samples."""


class Watch:
    """Watches one pass over ``length`` indices.

    With torch's loader the batch in the user's hands is the last one the loader has delivered; a position holds as long
    as every delivered batch was updated. Without one, an update must bring back all that was handed out.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self.deliverable = length  # less what drop_last leaves out, once the loader is known
        self.updates = 0  # batches that came back
        self.counted_before = 0  # indices of this epoch that a resumed stateful loader counts as its own
        self._opened = False
        self._by_index = False
        self._delivery: Delivery | None = None
        self._older: list[tuple[Delivery, int]] = []  # passes before this one, and how far they had come
        self._after_pending = False

    def open(self, sampler: Sampler[int]) -> None:
        """A loader, or something else, starts to take indices from the beginning."""
        self._opened = True
        self.counted_before = 0
        self._older = self._passes()
        self._delivery = delivery = find_delivery(sampler)
        if delivery is not None and delivery.batch_size and delivery.drop_last:
            self.deliverable = self.length - self.length % delivery.batch_size

    def counts_before(self, handed_out: int) -> None:
        """The loader counts so many indices of before as its own; the last batch of an epoch may have been short."""
        size = (self._delivery.batch_size if self._delivery is not None else None) or 1
        self.counted_before = -(-handed_out // size) * size

    def begin(self) -> None:
        """The first index is being taken."""
        if self._delivery is not None:
            self._delivery.begin()

    def follow(self, before: Watch, on_purpose: bool) -> None:
        """This pass comes after ``before``; ``on_purpose`` if the user said so by ``set_epoch``."""
        self._older = before._passes()
        self._after_pending = before.pending and not on_purpose

    def _passes(self) -> list[tuple[Delivery, int]]:
        """The passes so far whose iterators could still go on, and how far they have come."""
        passes = list(self._older)
        if self._delivery is not None:
            passes.append((self._delivery, self._delivery.delivered))
        return [(delivery, count) for delivery, count in passes if delivery.open]

    def note(self, by_index: bool) -> None:
        """A batch came back."""
        self.updates += 1
        self._by_index |= by_index

    @property
    def batches(self) -> int:
        """Batches of this pass the loader has delivered, as far as it can be asked; else those that came back."""
        delivery = self._delivery
        if delivery is None or delivery.batch_size is None or delivery.restarted:
            return self.updates
        return delivery.delivered - self.counted_before // delivery.batch_size

    @property
    def samples(self) -> int:
        """The samples of these batches."""
        size = self._delivery.batch_size if self._delivery is not None else None
        return min(self.batches * (size or 1), self.deliverable)

    @property
    def knows_loader(self) -> bool:
        """Whether torch's loader can be asked."""
        return self._delivery is not None and self._delivery.batch_size is not None

    @property
    def pending(self) -> bool:
        """Whether a batch was delivered that did not come back by position."""
        return not self._by_index and self.batches > self.updates

    def check(self, count: int, expected_from: int, handed_out: int) -> None:
        """Raise unless a batch of ``count`` losses is the next one, from index number ``expected_from`` on.

        ``handed_out`` indices have left the sampler.
        """
        if not self._opened:
            raise DriftError(
                "update() was called before train_data.sampler handed out any sample. "
                "Give the loader our sampler: DataLoader(train_data, sampler=train_data.sampler, ...)"
            )
        delivery = self._delivery
        if delivery is None:
            ahead = handed_out - expected_from
            if ahead != count:
                raise DriftError(
                    f"update() got {count} losses, but {ahead} samples were handed out since the last update. {REMEDY}"
                )
            return
        size = delivery.batch_size
        if (obstacle := delivery.obstacle()) is not None or size is None:
            raise DriftError(
                f"the batch cannot be known by its position: {obstacle}. Say which samples a batch holds: "
                "InfoBatch(..., index_key=...) puts the index into the batch, update(loss, index) takes it back"
            )
        if self._older or self._after_pending:
            self._check_older(delivery)
        if self.batches != self.updates + 1:
            raise DriftError(f"{self._what_happened()} {REMEDY}")
        expected = min(size, self.length - expected_from)
        taken = delivery.taken
        lost = handed_out != expected_from + expected if taken is None else taken != self.updates + 1
        if lost:
            raise DriftError(
                "the loader lost a batch to an error that was caught around it, so that positions are shifted. "
                f"{REMEDY}"
            )
        if count != expected:
            raise ValueError(
                f"loss must hold one value per sample of the batch: got {count}, but the batch has {expected} samples"
            )

    def _check_older(self, delivery: Delivery) -> None:
        """Raise if the batch may be from an earlier pass whose iterator goes on."""
        moved = any(d.open and not d.same_iterator(delivery) and d.delivered != count for d, count in self._older)
        if moved:
            raise DriftError(
                "an older iterator of the loader went on after a newer one was made, so that this batch is not from "
                f"the current pass. Look at samples through a loader of their own. {REMEDY}"
            )
        if self._after_pending and not self.updates and not delivery.open:
            raise DriftError(
                "a second iterator of the loader was made and dropped in the middle of an epoch, so that this batch "
                "may be the one fetched before. Look at samples through a loader of their own; or, if the epoch was "
                f"left on purpose, say so: call train_data.set_epoch(epoch) before the next one. {REMEDY}"
            )

    def _what_happened(self) -> str:
        delivered = self.batches
        if delivered <= self.updates:
            return f"update() was called again, though the loader has delivered only {delivered} batches."
        return (
            f"the loader has delivered {delivered} batches, but update() was called for only {self.updates} of the "
            f"earlier {delivered - 1}: an update was skipped, or something between loader and training fetches ahead "
            "or drops batches."
        )

    def check_end(self, done: int, handed_out: int) -> None:
        """Raise if the loader delivered everything, but the last batches did not come back."""
        delivery = self._delivery
        if delivery is None or not self.updates or done >= self.deliverable:
            return
        if self._by_index:
            if delivery.batch_size is None and handed_out >= self.length:
                warnings.warn(
                    f"{self.length} samples were handed out for this epoch, but only {done} came back: the loader "
                    f"takes its batches from a {delivery.source}, which drops or re-shards what train_data.sampler has "
                    "sharded already. Let it pass every index on (see the integration for your framework); if the "
                    "epoch was left early on purpose, all is well",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return
        if delivery.restarted:
            all_delivered = delivery.drained and handed_out >= self.deliverable
        else:
            all_delivered = self.knows_loader and self.samples >= self.deliverable
        if all_delivered:
            self._delivery = None  # said once; whoever goes on after that may
            batches = -(-self.deliverable // (delivery.batch_size or 1))
            raise DriftError(
                f"the epoch's {batches} batches were all delivered, but update() was called for {self.updates}: "
                f"the last losses are missing. {REMEDY}"
            )

    def __getstate__(self) -> dict[str, Any]:
        """A copy cannot share the loader."""
        return {**vars(self), "_delivery": None, "_opened": False, "_older": []}
