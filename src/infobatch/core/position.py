"""Where training stands in an epoch: which batch was delivered last, and which plan entries have come back.

An entry comes back when its loss is passed to ``update``. A loss never goes to the wrong sample. By position, every
batch that comes back must be the next one that was delivered, so that one number says what is done: ``cursor`` entries
from the front. By index, batches may come back in any order, in part or more than once; then every sample that came
back is marked.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .delivery import Delivery, DriftError
from .plan import Cut, Slice
from .scores import lasting

REMEDY = (
    "Call update() exactly once for every batch, in the loader's order; or name the samples of a batch: "
    "InfoBatch(..., index_key=...) puts the index into the batch, pass it back by update(loss, index)"
)
_CHUNK = 1 << 12  # indices turned into Python ints at a time: few enough for the cache


class Position:
    """One rank's position in its part of a plan: the owner of every counter of the epoch.

    With torch's loader the current batch is the last one that the loader has delivered; the position is right as long
    as ``update`` is called for every delivered batch. Without it, an update must be for all samples handed out so far.
    """

    def __init__(self, part: Slice, size: int, repeats: bool = False, batches: int = 0, passed_over: int = 0) -> None:
        self.part = part
        self.opened = False  # whether the sampler was asked for indices
        self.by_index = False  # whether a batch came back by its samples' names
        self.compiled = False  # whether update() runs inside compiled code, so that the host does not see what it does
        self._size = size  # of the data set
        self._repeats = repeats
        self._batches_before = batches  # of this epoch, before it was resumed
        self._passed_over_before = passed_over
        self._passed_over = 0  # samples of this rank's batches that were not chosen within their batch
        self._returned = 0  # batches of this pass that came back
        self.cursor = 0  # entries before the next expected batch, if batches come back by position
        self._back: torch.Tensor | None = None  # by sample, whether it came back by name
        self._in_step = True  # whether each batch came back by name before the next one was delivered
        self._unmarked: int | None = None  # from this entry to the cursor all came back by position
        self.loader: Delivery | None = None
        self._older: list[tuple[Delivery, int]] = []  # earlier passes that may go on, and the batches they delivered
        self._after_pending = False  # whether the pass before ended with a batch that had not come back
        self._counted_before = 0  # indices handed out before a resume, which a stateful loader counts too
        self._cut = Cut(len(part))
        self.total = len(part)  # entries to be delivered in all: without those that drop_last leaves out
        self._chunk_end = 0
        self._chunk: Iterator[int] = iter(())

    # -- handing out ---------------------------------------------------------------------------------------------

    def open(self, loader: Delivery | None) -> Iterator[Iterator[int]]:
        """The part's indices, in chunks, for a pass that starts now and has had no update yet."""
        assert not self.touched
        self.opened = True
        self._chunk, self._chunk_end = iter(()), 0
        self._counted_before = 0
        self._older = [(old, at) for old, at in self._passes() if loader is None or not old.same_iterator(loader)]
        self.loader = loader
        self._cut = Cut(len(self.part), self._batch_size or 1)
        if loader is not None and loader.batch_size and loader.drop_last:
            self.total = len(self.part) - len(self.part) % loader.batch_size
        return self._chunks()

    def _chunks(self) -> Iterator[Iterator[int]]:
        if self.loader is not None:
            self.loader.begin()
        for start in range(0, len(self.part), _CHUNK):
            chunk = self.part[start : start + _CHUNK].tolist()
            self._chunk, self._chunk_end = iter(chunk), start + len(chunk)
            yield self._chunk

    def keep_steps(self, steps: int, largest: int | None) -> Iterator[int]:
        """Cut the part into ``steps`` batches whose sizes differ by at most one, and return the sizes, largest first.

        With ``largest`` no batch is larger than that: the entries that do not fit are dropped.
        """
        self.total = len(self.part) if largest is None else min(len(self.part), steps * largest)
        self._cut = Cut(self.total, steps=steps)
        return iter(np.diff(self._cut.ends()).tolist())

    def steps_left(self, of_epoch: int, largest: int | None) -> int:
        """How many of the epoch's ``of_epoch`` steps are still to be made: in a resumed epoch, those not made before.

        On another number of ranks than before, their number follows from what is left of the plan.
        """
        whole, done = -(-len(self.part.order) // self.part.world), self._batches_before
        cut = Cut(whole if largest is None else min(whole, of_epoch * largest), steps=of_epoch)
        if self.part.start == min(cut.end(done) * self.part.world, len(self.part.order)):
            return of_epoch - done
        return max(1, round(of_epoch * len(self.part) / max(whole, 1)))

    @property
    def keeps_steps(self) -> bool:
        """Whether the number of batches stays that of full data, and their sizes shrink."""
        return self._cut.steps is not None

    @property
    def handed_out(self) -> int:
        """Indices that have left the sampler in this pass."""
        return self._chunk_end - operator.length_hint(self._chunk)

    def resume_loader(self, handed_out: int) -> None:
        """Note that a stateful loader resumes and counts earlier indices too; its last batch may have been short."""
        size = self._batch_size or 1
        self._counted_before = -(-handed_out // size) * size

    def place(self, epoch: int) -> dict[str, int]:
        """The place of the sampler's iterator: in the global plan, and in indices handed out on this rank."""
        return {
            "epoch": epoch,
            "position": self.part.start + self.handed_out * self.part.world,
            "handed_out": self._counted_before + self.handed_out,
            "ended": self.handed_out >= self.total,
        }

    def follow(self, before: Position, on_purpose: bool) -> None:
        """Make this epoch follow ``before``; ``on_purpose`` if the user called ``set_epoch``."""
        self._older = before._passes()
        self._after_pending = not on_purpose and not before.by_index and before._delivered > before._returned

    def _passes(self) -> list[tuple[Delivery, int]]:
        """The passes so far whose iterators could still go on, and how many batches each has delivered."""
        passes = list(self._older)
        if self.loader is not None:
            passes.append((self.loader, self.loader.delivered))
        return [(loader, at) for loader, at in passes if loader.open]

    # -- what the loader says ------------------------------------------------------------------------------------

    @property
    def _batch_size(self) -> int | None:
        """The size of the loader's batches if they are cut from the plan in order; else None."""
        return None if self.loader is None else self.loader.batch_size

    @property
    def _delivered(self) -> int:
        """Batches of this pass that the loader has delivered, if it can tell; else those that came back."""
        loader, size = self.loader, self._batch_size
        if loader is None or size is None or loader.restarted:
            return self._returned
        return loader.delivered - self._counted_before // size

    @property
    def samples_delivered(self) -> int:
        """The number of samples in the delivered batches."""
        return min(self._cut.end(self._delivered), self.total)

    @property
    def in_step(self) -> bool:
        """Whether the loop is seen to call update() with each batch as it is delivered, so that none is held back."""
        return not self.compiled and (not self.by_index or (self._in_step and self._returned > 1))

    @property
    def loop_is_over(self) -> bool:
        """Whether the loader's iterator is gone; a loop that is not in step may still hold batches."""
        return self.opened and (self.loader is None or not self.loader.open)

    def batch_in_hand(self) -> int:
        """The number of samples of the current batch, which only the loader can tell."""
        if self._batch_size is None:
            raise DriftError(
                "loss is one number for a batch whose size is not known, because no torch DataLoader draws from "
                "train_data.sampler. Name the samples of the batch: update(loss, index)"
            )
        return self.samples_delivered - self.cursor

    # -- what has come back --------------------------------------------------------------------------------------

    @property
    def touched(self) -> bool:
        """Whether the pass has had an update: without one it was only a peek."""
        return self._returned > 0 or (self.compiled and self._back is not None and bool(self._back.any()))

    @property
    def done(self) -> int:
        """How many entries are done, without a host sync unless update() is compiled and no loader can be asked."""
        if self._batch_size is not None:
            return self.samples_delivered if self.compiled else min(self.cursor, self.samples_delivered)
        if self.compiled and self._back is not None:
            return min(int(self._back.sum()), len(self.part))
        return min(self.cursor, len(self.part))

    @property
    def batches(self) -> int:
        """Batches of this epoch that came back, on this rank."""
        if self._batch_size is None:
            return self._batches_before + self._returned
        return self._batches_before + (self._delivered if self.compiled else min(self._returned, self._delivered))

    @property
    def complete(self) -> bool:
        """Whether every entry that will be delivered is done."""
        if self.compiled or self.by_index:
            return int(self.entries_back().sum()) >= self.total
        return self.cursor >= self.total

    @property
    def passed_over(self) -> int:
        """Samples that were in batches but not chosen from them, on all ranks, as if ranks were alike."""
        return self._passed_over_before + self._passed_over * self.part.world

    def pass_over(self, count: int) -> None:
        """Count ``count`` samples of a batch that were not chosen."""
        self._passed_over += count

    def entries_back(self) -> NDArray[np.bool_]:
        """Which entries of this rank's part are done, exactly; a host sync.

        A batch of which a part has come back is done: the rest was filtered out by the user, and is not delivered
        again when the epoch is resumed. So is a batch that was skipped as a whole, in a loop that is seen to call
        update() with each batch as it is delivered; one that fetches ahead or re-orders may still hold it.
        """
        if self._back is None or self._repeats or not (self.by_index or self.compiled):
            return np.arange(len(self.part)) < self.done
        back: NDArray[np.bool_] = self.marks(self._back.device).cpu().numpy()[self.part[:]]
        if self._batch_size:
            ends = self._cut.ends()
            batches = np.logical_or.reduceat(back, ends[:-1]) if len(back) else back
            if self.in_step:
                batches[: self._delivered - (not self.loop_is_over)] = True
            back = np.zeros_like(back)  # what drop_last leaves out is not of any batch
            back[: ends[-1]] = np.repeat(batches, np.diff(ends))
        return back

    def delivered_only(self) -> NDArray[np.integer]:
        """Samples that were delivered, but have not come back."""
        count = self.samples_delivered if self._batch_size is not None else 0
        return self.part[:count][~self.entries_back()[:count]]

    # -- the training step ---------------------------------------------------------------------------------------

    def check(self, count: int) -> None:
        """Raise unless a batch of ``count`` losses is the next one in the plan's order."""
        loader, size = self.loader, self._batch_size
        if not self.opened:
            raise DriftError(
                "update() was called before train_data.sampler handed out any sample. "
                "Give the loader our sampler: DataLoader(train_data, sampler=train_data.sampler, ...)"
            )
        if loader is None:
            ahead = self.handed_out - self.cursor
            if ahead != count:
                raise DriftError(
                    f"update() got {count} losses, but {ahead} samples were handed out since the last update. {REMEDY}"
                )
            return
        if (obstacle := loader.obstacle()) is not None or size is None:
            raise DriftError(
                f"the batch cannot be known by its position: {obstacle}. Name the samples of a batch: "
                "InfoBatch(..., index_key=...) puts the index into the batch, pass it back by update(loss, index)"
            )
        if self._older or self._after_pending:
            self._check_older(loader)
        if self._delivered != self._returned + 1:
            raise DriftError(f"{self._what_happened()} {REMEDY}")
        expected = self._cut.end(self._returned + 1) - self.cursor
        taken = loader.taken
        lost = self.handed_out != self.cursor + expected if taken is None else taken != self._returned + 1
        if lost:
            raise DriftError(
                "the loader lost a batch to an error that was caught around it, so that positions are shifted. "
                f"{REMEDY}"
            )
        if count != expected:
            raise ValueError(
                f"loss must hold one value per sample of the batch: got {count}, but the batch has {expected} samples"
            )

    def _check_older(self, loader: Delivery) -> None:
        """Raise if the batch may be from an earlier pass whose iterator goes on."""
        if any(old.open and not old.same_iterator(loader) and old.delivered != at for old, at in self._older):
            raise DriftError(
                "an older iterator of the loader went on after a newer one was made, so that this batch is not from "
                f"the current pass. Look at samples through a loader of their own. {REMEDY}"
            )
        if self._after_pending and not self._returned and not loader.open:
            raise DriftError(
                "a second iterator of the loader was made and dropped in the middle of an epoch, so that this batch "
                "may be the one fetched before. Look at samples through a loader of their own; or, if the epoch was "
                f"left on purpose, say so: call train_data.set_epoch(epoch) before the next one. {REMEDY}"
            )

    def _what_happened(self) -> str:
        if self._delivered <= self._returned:
            return f"update() was called again, though the loader has delivered only {self._delivered} batches."
        return (
            f"the loader has delivered {self._delivered} batches, but update() was called for only {self._returned} of "
            f"the earlier {self._delivered - 1}: an update was skipped, or something between loader and training "
            "fetches ahead or drops batches."
        )

    def advance(self, count: int) -> None:
        """Count the next ``count`` entries as back, by position."""
        if self._unmarked is None:
            self._unmarked = self.cursor
        self._returned += 1
        self.cursor += count

    def mark(self, index: torch.Tensor) -> None:
        """Mark the samples named by ``index`` as back: tensor operations only, for compiled code."""
        self.compiled = True
        self.marks(index.device).index_fill_(0, index, True)

    def name(self, index: torch.Tensor) -> bool:
        """Mark the samples named by ``index`` as back; returns whether each of them is named only once.

        An update without a new sample (two losses for one batch, or SAM's second step) does not count as a batch. On an
        accelerator, where looking would be a host sync, every update counts as one batch, but no batch counts before
        the loader has delivered it; samples that are named twice are not noticed there.
        """
        self.by_index = True
        fresh, distinct = len(index), not self._repeats
        if not self._repeats:
            back = self.marks(index.device)
            if index.device.type == "cpu":
                samples = index.numpy()
                self._in_step = self._in_step and self._is_in_hand(samples)
                first = self._is_first(samples)
                fresh = int(np.count_nonzero(first & ~back.numpy()[samples]))
                distinct = bool(first.all())
            else:
                self._in_step = False  # not known
            back.index_fill_(0, index, True)
        if fresh:
            self._returned += 1
            size = self._batch_size
            self.cursor = min(self.cursor + fresh, len(self.part)) if size is None else self._cut.end(self._returned)
        return distinct

    def _is_in_hand(self, samples: NDArray[np.int64]) -> bool:
        """Whether all these samples are in the batch that was delivered last."""
        size, batch = self._batch_size, -1 - self._delivered
        if size is None:
            return False
        self._scratch[self.part[self._cut.end(self._delivered - 1) : self._cut.end(self._delivered)]] = batch
        return bool((self._scratch[samples] == batch).all())

    def _is_first(self, samples: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Where a sample is named for the first time; by two passes, without sorting."""
        places = np.arange(len(samples), dtype=np.int32)
        self._scratch[samples[::-1]] = places[::-1]
        return np.asarray(self._scratch[samples] == places)

    @cached_property
    def _scratch(self) -> NDArray[np.int32]:
        """A number per sample, for use within a step."""
        return np.zeros(self._size, np.int32)

    def marks(self, device: torch.device) -> torch.Tensor:
        """A mask of the samples that came back, on this device."""
        if self._back is None or self._back.device != device:
            with lasting():
                none = torch.zeros(self._size, dtype=torch.bool, device=device)
                self._back = none if self._back is None else self._back.to(device)
        if self._unmarked is not None:
            by_position = self.part[self._unmarked : self.cursor].astype(np.int64)
            self._back[torch.from_numpy(by_position).to(device)] = True
            self._unmarked = None
        return self._back

    def is_last(self, index: torch.Tensor) -> torch.Tensor:
        """Whether a batch named by ``index`` is the one that ends this rank's part."""
        if self._repeats:
            return torch.tensor(self.cursor + len(index) >= len(self.part), device=index.device)
        return (index == int(self.part[len(self.part) - 1 :][0])).any()

    def last_batch(self, rows: int) -> int:
        """How many entries the last batch of this rank's part has, in an update with ``rows`` losses."""
        return rows if self._batch_size is None else int(np.diff(self._cut.ends()[-2:])[0])

    # -- the end -------------------------------------------------------------------------------------------------

    def check_end(self, on_purpose: bool) -> None:
        """Raise if the loader delivered everything, but the last batches did not come back.

        It does not raise if the user left the epoch ``on_purpose``, by ``set_epoch``.
        """
        loader = self.loader
        if loader is None or self.compiled or not self._returned or self.cursor >= self.total:
            return
        if self.by_index:
            if loader.batch_size is None and self.handed_out >= len(self.part):
                warnings.warn(
                    f"{len(self.part)} samples were handed out for this epoch, but only {self.cursor} came back: the "
                    f"loader takes its batches from a {loader.source}, which drops or re-shards what "
                    "train_data.sampler has sharded already. Let it pass every index on (see the integration for your "
                    "framework); if the epoch was left early on purpose, all is well",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return
        if loader.restarted:
            all_delivered = loader.drained and self.handed_out >= self.total
        else:
            all_delivered = loader.batch_size is not None and self.samples_delivered >= self.total
        if all_delivered and not on_purpose:
            self.loader = None  # said once; whoever goes on after that may
            batches = -(-self.total // (loader.batch_size or 1))
            raise DriftError(
                f"the epoch's {batches} batches were all delivered, but update() was called for {self._returned}: "
                f"the last losses are missing. {REMEDY}. If they were left out on purpose, say so: call "
                "train_data.set_epoch(epoch) before the next epoch"
            )

    def __getstate__(self) -> dict[str, Any]:
        """Everything for a copy but the loader, which cannot be shared: a copy keeps only what came back."""
        mine = {**vars(self), "loader": None, "opened": False, "_older": [], "_chunk": iter(()), "_chunk_end": 0}
        return mine
