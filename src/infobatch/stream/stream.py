"""``Stream``: the promise of InfoBatch for data without length or index."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import IterableDataset, get_worker_info

from ..core.booking import weighted_sum
from ..core.budget import check_noise, check_size
from ..core.checks import check_choice, check_loss, check_whole, checked_part, is_real
from ..core.weights import working_dtype
from ..distributed.ranks import Ranks
from . import meeting, state
from .bins import BINS
from .choose import Chosen, choose
from .groups import Groups, Rule
from .ids import Ids
from .keys import UNKNOWN, Keys
from .passage import Draws, Gate, Passage
from .shared import SharedArray
from .source import Reader, check_source
from .stats import KeyStats, StreamStats, Totals, sums_of
from .ticket import PERIOD, are_of, check_tickets, names, tag_of, weights

_SLOTS = {"key": 1 << 12, "id": 1 << 20}
_WORKERS = 1024  # that have a count of passes of their own
_CHOICES = 1 << 32  # where the draws of choose() begin, beyond those of any worker
_SCALES = ("samples", "steps")


class Stream(IterableDataset[Any]):
    """Lets part of a stream through, with weights that keep the expected gradient that of the whole stream.

    Args:
        source: an iterable data set (torch's, ``datasets`` streaming, WebDataset), or a function that returns an
            iterator.
        key: a function from a sample to a text or whole number that is known before training on it, such as its source,
            class or length bucket. Each key has a running mean of its gradient's size.
        id: a function from a sample to its id, for streams that repeat: each sample's own losses are remembered.
        look: a function from a list of samples to one score for each, similar for samples of similar loss: a small
            model's loss, a length, an n-gram statistic. It is called with ``look_batch`` samples at a time.
            Without ``key``, ``id`` and ``look`` all samples go on, and :meth:`choose` chooses within a batch.
        noise: the budget: training is as if batches were at most 1 + noise times smaller. 0.1 if ``saving`` is None.
        saving: the share of the stream to leave out, at the least noise, in place of a budget.
        size: how the gradient's squared norm follows from a loss: "smooth" for any loss, "cross-entropy", or "norm"
            if ``score`` is a norm.
        floor: the least probability that a sample is let through; no weight exceeds 1 / floor.
        slots: the number of keys (default 4,096) or ids (2**20) that there is room for.
        scale: "samples": a step counts for all samples it stands for, as with :class:`InfoBatch`; "steps": each step
            counts as a step on the whole stream, for training with a fixed number of steps.
        every: the number of updates after which probabilities are updated, and ranks share their figures.
        seed: the seed of the random draws.
        ticket_key: the key under which dict samples carry their ticket; tuples have it as a last element.
        look_batch: how many samples ``look`` gets at a time.
        group: the process group that shares the stream, if not all processes do.

    >>> import torch
    >>> from torch.utils.data import DataLoader
    >>> def read():
    ...     for number in range(512):
    ...         yield torch.tensor([float(number % 2)]), number % 2
    >>> stream = Stream(read, key=lambda sample: sample[1])
    >>> for x, y, ticket in DataLoader(stream, batch_size=16):
    ...     loss = stream.update(0.01 + x.flatten(), ticket)
    >>> stream.stats.trained < 512
    True
    """

    def __init__(
        self,
        source: Any,
        *,
        key: Callable[[Any], Any] | None = None,
        id: Callable[[Any], Any] | None = None,  # noqa: A002 - what users call it
        look: Callable[[list[Any]], Any] | None = None,
        noise: float | None = None,
        saving: float | None = None,
        size: str = "smooth",
        floor: float = 0.1,
        slots: int | None = None,
        scale: str = "samples",
        every: int = 16,
        seed: int = 0,
        ticket_key: str = "ticket",
        look_batch: int = 64,
        group: Any = None,
    ) -> None:
        super().__init__()
        check_source(source)
        asked = {name: ask for name, ask in (("key", key), ("id", id), ("look", look)) if ask is not None}
        if len(asked) > 1:
            raise ValueError(
                f"{' and '.join(asked)} are given, but samples are known by only one of them: leave out the rest"
            )
        kind, ask = next(iter(asked.items()), ("forward", None))
        if ask is not None and not callable(ask):
            raise TypeError(f"{kind} must be a function of a sample, got {ask!r}: {kind}=lambda sample: sample[...]")
        if noise is not None and saving is not None:
            raise ValueError(
                f"pass noise, the budget, or saving, the share to leave out, not both: got noise={noise} and "
                f"saving={saving}"
            )
        check_noise(0.1 if noise is None else noise)
        if saving is not None and (not is_real(saving) or not 0 < saving < 1 - floor):
            raise ValueError(
                f"saving must lie in (0, 1 - floor), the share of the stream to leave out, got {saving!r} with "
                f"floor={floor}"
            )
        check_size(size)
        check_choice("scale", scale, _SCALES)
        for name, value, meaning in (
            ("every", every, "updates between two renewals of the probabilities"),
            ("look_batch", look_batch, "samples that look gets at a time"),
        ):
            check_whole(name, value, 1, meaning)
        check_whole("seed", seed, 0, "the seed of the random draws")
        if slots is not None:
            if kind not in _SLOTS:
                raise ValueError(f"slots={slots} is only for key= and id=: leave it out")
            check_whole("slots", slots, 1, "keys or ids that there is room for")
        rule = Rule(
            0.1 if noise is None else float(noise),
            None if saving is None else float(saving),
            size,
            checked_part("floor", floor, "the least probability to let a sample through"),
        )
        self.source = source
        self.scale = scale
        self.every = int(every)
        self.seed = int(seed)
        self.slots = int(slots or _SLOTS.get(kind, 0))
        keys = Keys(self.slots) if kind == "key" else None
        ids = Ids(self.slots) if kind == "id" else None
        self._groups = Groups({"key": self.slots, "forward": 1}.get(kind, BINS), rule)
        settings = {"kind": kind, "noise": rule.noise, "saving": rule.saving, "size": size, "floor": rule.floor}
        self._settings = {**settings, "slots": self.slots, "seed": self.seed, "every": self.every, "scale": scale}
        tag = tag_of(zlib.crc32(repr(self._settings).encode()))
        self._gate = Gate(kind, ask, self._groups, keys, ids, int(look_batch), tag, ticket_key)
        self._passes = SharedArray((_WORKERS,), torch.int64)  # begun by each worker
        self._ranks = Ranks(group)
        self._here: tuple[int, int] | None = None  # (rank, world), in a copy for another process
        self._passage: Passage | None = None  # the latest in this process
        self._resumed: dict[str, Any] | None = None  # the place where the next pass begins
        self._beginnings: list[dict[str, Any]] = []  # see Reader
        self._pending: list[tuple[torch.Tensor, torch.Tensor]] = []  # tickets and losses since the last renewal
        self._totals = Totals()
        self._updates = 0
        self._choices = 0
        self._in_step = False  # whether ranks are going through their batches together
        self._in_hand = False  # whether such a batch was handed out and is not counted yet
        self._last: tuple[torch.Tensor, torch.Tensor] | None = None

    # -- reading -------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """One pass: the samples that are let through, with their tickets."""
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        rank, world = self._here_and_world()
        passes = self._passes.array[worker % _WORKERS :]  # the first one is this worker's
        reader = Reader(self.source, rank * workers + worker, world * workers, self._beginnings)
        draws = Draws(self.seed, rank, worker, int(passes[0]))
        passage = Passage(self._gate, reader, draws, functools.partial(passes.__setitem__, 0))
        if info is None:
            self._passage = passage
            if self._resumed is not None:
                passage.load_state_dict(self._resumed)
                self._resumed = None
        return passage

    def __getattr__(self, name: str) -> Any:
        """Attributes of the source, such as ``set_epoch``."""
        if name.startswith("_") or "source" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.source, name)

    def __getstate__(self) -> dict[str, Any]:
        """The state for workers, which read samples but get no losses."""
        here: dict[str, Any] = {"_here": self._here_and_world(), "_pending": [], "_passage": None}
        here |= {"_resumed": None, "_last": None}
        return {**self.__dict__, **here}

    def _here_and_world(self) -> tuple[int, int]:
        return self._here or self._ranks.here()

    # -- training ------------------------------------------------------------------------------------------------

    def update(
        self, loss: torch.Tensor, ticket: torch.Tensor | Chosen, *, score: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Record a batch's losses for their keys or ids and return the weighted mean, to call ``backward()`` on.

        ``loss`` has one value per sample. ``ticket`` is the batch's tickets, or the result of :meth:`choose`.
        ``score`` is recorded in place of the loss.
        """
        check_loss("loss", loss)
        mean_over = ticket.looked_at if isinstance(ticket, Chosen) else len(loss)
        ticket = check_tickets(ticket.ticket if isinstance(ticket, Chosen) else ticket, len(loss), self._gate.tag)
        if score is not None:
            check_loss("score", score, like=loss)
        if self._here_and_world()[1] > 1 and not self._in_step:
            raise RuntimeError(
                f"{self._here_and_world()[1]} ranks train on streams that may end at different steps: loop over "
                "stream.together(loader) in place of the loader, so that they end together and share their figures"
            )
        weight = weights(ticket).to(loss.device, working_dtype(loss))
        mean = weighted_sum(loss, weight) / mean_over
        if self.scale == "steps":
            mean = mean * self._groups.keep
        self._last = loss.detach(), weight
        self._pending.append((ticket, (loss if score is None else score).detach()))
        if not self._in_step:
            self._step()
        return mean.to(loss.dtype)

    def choose(self, loss: torch.Tensor) -> Chosen:
        """Choose the samples of a batch to train on, by the losses of a forward pass over all of them.

        Train on the rows at ``.positions``, and pass the result to :meth:`update` as the ticket. The expected mean is
        then that of the whole batch.
        """
        check_loss("loss", loss)
        if self._gate.kind != "forward":
            raise RuntimeError(
                f"this stream lets samples through by {self._gate.kind}: choose() is for Stream(source, noise=...) "
                "without it, where every sample goes on to its batch"
            )
        place = [self.seed, self._here_and_world()[0], _CHOICES, self._choices]
        self._choices += 1
        rng = np.random.Generator(np.random.SFC64(np.random.SeedSequence(place)))
        return choose(loss, self._groups.rule, self._totals.lowest, self._gate.tag, rng)

    def weights_of(self, ticket: torch.Tensor) -> torch.Tensor:
        """The factors by which ``update`` multiplies the losses of samples with these tickets, before the mean."""
        weight = weights(check_tickets(ticket, len(ticket), self._gate.tag))
        return weight * self._groups.keep if self.scale == "steps" else weight

    @property
    def batches_done(self) -> int:
        """How many batches were passed to ``update`` so far."""
        return self._updates

    @property
    def ticket_key(self) -> str:
        """The key under which dict samples carry their ticket."""
        return self._gate.ticket_key

    @property
    def loss(self) -> torch.Tensor:
        """The last batch's mean loss on the scale of the whole stream: Σ weight·loss / Σ weight."""
        if self._last is None:
            return torch.tensor(torch.nan)
        loss, weight = self._last
        return (weighted_sum(loss, weight) / weight.sum()).to(loss.dtype)

    def together(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Batches of ``loader`` for as long as every rank has one, so that all make the same number of steps.

        One number is exchanged before each batch; every ``every`` batches ranks share their figures.
        With one process these are the loader's batches.
        """
        if self._here_and_world()[1] == 1:
            yield from loader
            return
        self._in_step = True
        try:
            if self._in_hand:  # a batch from before the state was saved or the loop was left
                self._step()
            for batch in meeting.in_step(loader, self._ranks):
                self._in_hand = True
                yield batch
                self._step()
        finally:
            self._in_step = False

    def _step(self) -> None:
        self._in_hand = False
        self._updates += 1
        if self._updates % self.every == 0:
            self._renew()

    # -- what is learned -----------------------------------------------------------------------------------------

    def _renew(self) -> None:
        """Enter the losses since the last renewal into the figures; with several ranks, those of all."""
        tickets, loss, rejected = self._pending_losses()
        self._pending.clear()
        self._totals.rejected += rejected
        self._totals.lowest = min(self._totals.lowest, float(loss.min(initial=0.0)))
        weight = PERIOD / ((tickets & (PERIOD - 1)) + 1)
        size = self._groups.rule.sizes(loss, self._totals.lowest)
        group, new = self._group_of(names(tickets))
        known = group != UNKNOWN
        figures = self._groups.gather(group[known], size[known], weight[known])
        sums = sums_of(size, weight)
        if self._here_and_world()[1] > 1:
            figures, sums, new = meeting.share(self._ranks, figures, sums, new)
        self._totals = self._totals.plus(sums)
        if self._gate.ids is not None:
            self._gate.ids.book(names(tickets), loss)
        if self._gate.keys is not None:
            self._gate.keys.enter(new)
        if self._gate.kind != "forward":
            self._groups.add(figures)

    def _pending_losses(self) -> tuple[NDArray[np.int64], NDArray[np.float64], int]:
        """Tickets and finite losses since the last renewal, and how many losses were not finite."""
        if not self._pending:
            return np.zeros(0, np.int64), np.zeros(0), 0
        ticket = torch.cat([ticket.cpu() for ticket, _ in self._pending])
        loss = torch.cat([loss.cpu().double() for _, loss in self._pending]).numpy()
        if not are_of(ticket, self._gate.tag):  # not checked before on an accelerator, to spare a sync
            raise ValueError("update was given tickets that this stream did not give out: pass the batch's own tickets")
        finite = np.isfinite(loss)
        return ticket.numpy()[finite], loss[finite], int((~finite).sum())

    def _group_of(self, hashes: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[int]]:
        """The group of each sample, and the hashes of keys that have no group yet."""
        gate = self._gate
        if gate.ids is not None:
            return gate.ids.bins(hashes), []
        if gate.keys is None:
            return hashes, []
        new = list(dict.fromkeys(hashes[gate.keys.number(hashes) == UNKNOWN].tolist()))
        if self._here_and_world()[1] == 1:
            gate.keys.enter(new)
            return gate.keys.number(hashes), []
        return gate.keys.number(hashes), [key for key in new if key not in gate.keys.without_room][: meeting.NEW_KEYS]

    @property
    def stats(self) -> StreamStats:
        """Samples trained on, samples they stand for, and the noise that cost; also per key if there are keys."""
        gate, groups = self._gate, self._groups
        tickets, loss, rejected = self._pending_losses()  # they stay pending
        weight = PERIOD / ((tickets & (PERIOD - 1)) + 1)
        totals = self._totals.plus(sums_of(groups.rule.sizes(loss, self._totals.lowest), weight))
        key_names = [] if gate.keys is None else gate.keys.names()
        keep = groups.ticks.array / PERIOD
        keys = tuple(
            KeyStats(
                name,
                int(groups.trained[number]),
                float(groups.stands_for[number]),
                float(keep[number]),
                float(groups.mean[number]),
            )
            for number, name in enumerate(key_names)
        )
        return StreamStats(
            trained=totals.trained,
            stands_for=totals.stands_for,
            noise=totals.noise,
            rejected=totals.rejected + rejected,
            keys=keys,
            keys_without_room=0 if gate.keys is None else len(gate.keys.without_room),
            collisions=0 if gate.ids is None else gate.ids.collisions,
            ids_held=0 if gate.ids is None else gate.ids.held,
            slots=self.slots,
        )

    def summary(self) -> str:
        """The statistics as a text to print."""
        return str(self.stats)

    # -- stopping and going on -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All figures of the stream, and its place if this process reads it: tensors and plain values.

        With a loader's workers the place is in the state of a ``StatefulDataLoader``: save that too. Each rank saves
        its own state.
        """
        if get_worker_info() is not None:
            return {}
        return state.write(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume where the state was saved."""
        if get_worker_info() is None and state_dict:
            state.read(self, state_dict)
