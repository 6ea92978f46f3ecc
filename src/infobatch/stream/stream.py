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
from .ticket import PERIOD, are_of, checked, names, tag_of, weights

_SLOTS = {"key": 1 << 12, "id": 1 << 20}
_WORKERS = 1024  # that have a count of passes of their own
_CHOICES = 1 << 32  # where the draws of choose() begin, beyond those of any worker
_SCALES = ("samples", "steps")


class Stream(IterableDataset[Any]):
    """Lets part of a stream through, each sample with its weight, so that the expected gradient is that of all of it.

    Args:
        source: an iterable data set (torch's, ``datasets`` streaming, WebDataset), or a function that returns an
            iterator.
        key: what is known of a sample before it is trained on, such as its source, class or length bucket: a function
            from a sample to a text or whole number. Each key has a running mean of its gradient's size.
        id: a function from a sample to its id, for streams that come round again: its own losses are remembered.
        look: a function from a list of samples to one score for each, the same for samples of like loss: a small
            model's loss, a length, an n-gram statistic. It is asked ``look_batch`` samples at a time.
            With none of the three all samples go on, and :meth:`choose` chooses within a batch.
        noise: the budget: training is as if batches were at most 1 + noise times smaller. 0.1 if ``saving`` is None.
        saving: the share of the stream to leave out, at the least noise, in place of a budget.
        size: how the gradient's squared norm follows from a loss: "smooth" for any loss, "cross-entropy", or "norm"
            where ``score`` is a norm.
        floor: the least probability: no weight exceeds its inverse.
        slots: how many keys (4,096), or ids (2**20), there is room for.
        scale: "samples": a step counts for all samples it stands for, as with :class:`InfoBatch`; "steps": each step
            counts as one of the whole stream, for a fixed number of steps.
        every: after how many updates probabilities are renewed, and ranks share what they learned.
        seed: of the draws.
        ticket_key: under which dict samples carry their ticket; tuples have it as a last element.
        look_batch: how many samples ``look`` is asked at a time.
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
                f"{' and '.join(asked)} are given: a sample is known by one of them, so leave out the rest"
            )
        kind, ask = next(iter(asked.items()), ("forward", None))
        if ask is not None and not callable(ask):
            raise TypeError(f"{kind} must be a function of a sample, got {ask!r}: {kind}=lambda sample: sample[...]")
        if noise is not None and saving is not None:
            raise ValueError("noise and saving are both given: say how much noise training bears, or what to leave out")
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
            ("look_batch", look_batch, "samples that look is asked at a time"),
        ):
            check_whole(name, value, 1, meaning)
        check_whole("seed", seed, 0, "of the draws")
        if slots is not None:
            if kind not in _SLOTS:
                raise ValueError(f"slots={slots} is for key= and id=, which remember; leave it out")
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
        self._here: tuple[int, int] | None = None  # (rank, world), where it is known from another process
        self._passage: Passage | None = None  # the latest in this process
        self._resumed: dict[str, Any] | None = None  # where the next pass begins
        self._beginnings: list[dict[str, Any]] = []  # see Reader
        self._pending: list[tuple[torch.Tensor, torch.Tensor]] = []  # tickets and losses that are not booked yet
        self._totals = Totals()
        self._updates = 0
        self._choices = 0
        self._in_step = False  # whether ranks go through their batches together now
        self._in_hand = False  # whether one of these batches is in the user's hands, and not counted yet
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
        """What workers need: they read, and book nothing."""
        here: dict[str, Any] = {"_here": self._here_and_world(), "_pending": [], "_passage": None}
        here |= {"_resumed": None, "_last": None}
        return {**self.__dict__, **here}

    def _here_and_world(self) -> tuple[int, int]:
        return self._here or self._ranks.here()

    # -- training ------------------------------------------------------------------------------------------------

    def update(
        self, loss: torch.Tensor, ticket: torch.Tensor | Chosen, *, score: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The weighted mean of a batch's losses; what they tell is booked to the keys or ids they belong to.

        ``loss`` has one value per sample, ``ticket`` is what the batch carries, or what :meth:`choose` returned.
        ``score`` is judged by in place of the loss.
        """
        check_loss("loss", loss)
        mean_over = ticket.looked_at if isinstance(ticket, Chosen) else len(loss)
        ticket = checked(ticket.ticket if isinstance(ticket, Chosen) else ticket, len(loss), self._gate.tag)
        if score is not None:
            check_loss("score", score, like=loss)
        if self._here_and_world()[1] > 1 and not self._in_step:
            raise RuntimeError(
                f"{self._here_and_world()[1]} ranks train on streams that may end at different steps: loop over "
                "stream.together(loader) in place of the loader, by which they end together and share what they learn"
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
        """Which samples of a batch to train on, by the losses of a forward pass over all of them.

        Train on the rows at ``.positions``, and give the result to :meth:`update` as the ticket. The mean is then that
        of the whole batch in expectation.
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
        """What ``update`` multiplies the losses of samples with these tickets by, before it takes the mean."""
        weight = weights(checked(ticket, len(ticket), self._gate.tag))
        return weight * self._groups.keep if self.scale == "steps" else weight

    @property
    def batches_done(self) -> int:
        """How many batches came back so far."""
        return self._updates

    @property
    def ticket_key(self) -> str:
        """Under which dict samples carry their ticket."""
        return self._gate.ticket_key

    @property
    def loss(self) -> torch.Tensor:
        """The last batch's mean loss as the whole stream would show it: Σ weight·loss / Σ weight."""
        if self._last is None:
            return torch.tensor(torch.nan)
        loss, weight = self._last
        return (weighted_sum(loss, weight) / weight.sum()).to(loss.dtype)

    def together(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Batches of ``loader`` for as long as every rank has one, so that all make the same number of steps.

        One number is exchanged before each batch; every ``every`` batches ranks share what they learned.
        With one process these are the loader's batches.
        """
        if self._here_and_world()[1] == 1:
            yield from loader
            return
        self._in_step = True
        try:
            if self._in_hand:  # a batch of before, when the state was taken or the loop was left
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
        """Book the losses that came back; with several ranks, those of all."""
        tickets, loss, rejected = self._came_back()
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
            figures, sums, new = meeting.shared(self._ranks, figures, sums, new)
        self._totals = self._totals.plus(sums)
        if self._gate.ids is not None:
            self._gate.ids.book(names(tickets), loss)
        if self._gate.keys is not None:
            self._gate.keys.enter(new)
        if self._gate.kind != "forward":
            self._groups.add(figures)

    def _came_back(self) -> tuple[NDArray[np.int64], NDArray[np.float64], int]:
        """Tickets and finite losses since the last renewal, and how many losses were not finite."""
        if not self._pending:
            return np.zeros(0, np.int64), np.zeros(0), 0
        ticket = torch.cat([ticket.cpu() for ticket, _ in self._pending])
        loss = torch.cat([loss.cpu().double() for _, loss in self._pending]).numpy()
        if not are_of(ticket, self._gate.tag):  # on an accelerator it was not looked at, to spare a sync
            raise ValueError("update was given tickets that this stream did not give out: pass the batch's own tickets")
        finite = np.isfinite(loss)
        return ticket.numpy()[finite], loss[finite], int((~finite).sum())

    def _group_of(self, named: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[int]]:
        """The group of each sample, and the hashes of keys that have none yet."""
        gate = self._gate
        if gate.ids is not None:
            return gate.ids.bins(named), []
        if gate.keys is None:
            return named, []
        new = list(dict.fromkeys(named[gate.keys.number(named) == UNKNOWN].tolist()))
        if self._here_and_world()[1] == 1:
            gate.keys.enter(new)
            return gate.keys.number(named), []
        return gate.keys.number(named), [key for key in new if key not in gate.keys.without_room][: meeting.NEW_KEYS]

    @property
    def stats(self) -> StreamStats:
        """Samples trained on, what they stand for, the noise that cost; per key where there are keys."""
        gate, groups = self._gate, self._groups
        tickets, loss, rejected = self._came_back()  # and stays to be booked
        weight = PERIOD / ((tickets & (PERIOD - 1)) + 1)
        totals = self._totals.plus(sums_of(groups.rule.sizes(loss, self._totals.lowest), weight))
        called = [] if gate.keys is None else gate.keys.names()
        keep = groups.ticks.array / PERIOD
        keys = tuple(
            KeyStats(
                name,
                int(groups.trained[number]),
                float(groups.stands_for[number]),
                float(keep[number]),
                float(groups.mean[number]),
            )
            for number, name in enumerate(called)
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
        """All that was learned, and where the stream is if this process reads it: tensors and plain values.

        With a loader's workers the place is in the state of a ``StatefulDataLoader``: save that too. Each rank saves
        its own state.
        """
        if get_worker_info() is not None:
            return {}
        return state.write(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where the state was taken."""
        if get_worker_info() is None and state_dict:
            state.read(self, state_dict)
