"""One training run: which epoch it is in, its plans, its records, and the state to resume from."""

from __future__ import annotations

import inspect
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from .core import state
from .core.booking import Booking
from .core.checks import check_whole
from .core.choice import Choice
from .core.delivery import Delivery, DriftError
from .core.history import ScoreHistory
from .core.late import LateBatches
from .core.method import BatchMethod, Epoch, Gradients, Memory, Method, blank_memory
from .core.plan import EpochPlan, Slice, generator, shuffled
from .core.position import REMEDY, Position
from .core.scores import ScoreTable
from .core.shuffle import Order
from .core.stats import EpochStats, History, Stats
from .core.weights import Weights
from .distributed import exchange
from .distributed.ranks import LOAD, MADE, NEW_EPOCH, SEED, STATE, Ranks

FORGOTTEN = (
    "update(loss, index) got all samples of epoch {epoch}, but train_data.sampler has handed out none of them: nothing "
    "will ever be pruned. Give the loader our sampler, DataLoader(train_data, sampler=train_data.sampler, ...); or, if "
    "you draw the samples of train_data.plan yourself, call train_data.set_epoch(epoch) before each epoch"
)
_NO_SEED = -1  # in a message between ranks
MUCH_NOISE = 1.5
NOISY = (
    "in epoch {epoch} the samples that stand in for pruned ones made gradients as noisy as if batches were {noise:.2f} "
    "times smaller, which often costs accuracy: prune less (a lower ratio or saving), or use "
    "method='infobatch-adaptive', which keeps this factor within 1.1. summary() shows it for every epoch"
)
OUTSIDE = (
    "update() without an index, or with a method that chooses within batches, asks the loader which batch this is, and "
    "so runs outside the compiled graph. To compile it, name the samples: InfoBatch(..., index_key=...) and "
    "update(loss, index)"
)


class Watcher(Protocol):
    """An object that is called when epochs begin and end."""

    def begin_epoch(self, epoch: int) -> None:
        """Called when an epoch becomes current, and when a pass over it begins: none of it was trained here yet."""

    def end_epoch(self, plan: EpochPlan, scores: NDArray[np.float32]) -> None:
        """Called when the epoch after ``plan``'s begins, with the trained plan and the score table after it.

        Called earlier as well if a state is saved at the end of the epoch, because training may stop there; the epoch
        is then reported twice. The last epoch is reported only if a state is saved.
        """


@dataclass
class Run:
    """Makes each epoch's plan from the scores and records what was trained; the same on every rank.

    ``announce(seed, epoch, samples, rank, world)`` is called whenever the plan, or this rank's part of it, changes.
    ``chosen_seed`` says that the user gave the seed, so that neither a framework nor a state replaces it.
    """

    size: int
    num_epochs: int
    pruning: range
    method: Method
    seed: int
    chosen_seed: bool
    table: ScoreTable
    order: Iterable[int] | None
    by_index: bool
    ranks: Ranks
    announce: Callable[[int, int, int, int, int], None]
    score_history: ScoreHistory | None = None  # the scores of every epoch, where the user wants them
    plan: EpochPlan = field(init=False)
    position: Position = field(init=False)
    seconds: float = field(default=0.0, init=False)  # spent in the library itself
    memory: dict[str, NDArray[np.float32]] = field(init=False)
    update_outside_graph: Callable[..., torch.Tensor] | None = field(default=None, init=False)
    watcher: Watcher | None = field(default=None, init=False)
    _booking: Booking = field(init=False)
    _choice: Choice | None = field(default=None, init=False)  # within the current batch
    _late: LateBatches | None = field(default=None, init=False)
    _upcoming: EpochPlan | None = field(default=None, init=False)  # drawn ahead of its epoch
    _batch_size: int = field(default=0, init=False)  # of the loader; 0: not known, or plans need not fit it
    _history: History = field(default_factory=History, init=False)
    _agreed_world: int = field(default=1, init=False)
    _shared_rejected: int = field(default=0, init=False)
    _resumed_from: int | None = field(default=None, init=False)  # checksum of the state that was just loaded
    _warned: bool = field(default=False, init=False)  # whether the warning about noise was given
    _driven: bool = field(default=False, init=False)  # whether anyone asked for the sampler's indices, or set the epoch

    def __post_init__(self) -> None:
        self.memory = blank_memory(self.method, self.size)
        self._open(self._draw(0, None, self.memory))

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count the time of a block as the library's own."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - started

    # -- epochs --------------------------------------------------------------------------------------------------

    def set_epoch(self, epoch: int) -> None:
        """Make the plan of ``epoch`` current, unless it already is and has not been trained on yet."""
        check_whole("epoch", epoch, 0, "epochs are counted from 0")
        epoch = int(epoch)
        self._driven = True
        if self._resumed_from is not None and epoch < self.plan.epoch:
            warnings.warn(
                f"set_epoch({epoch}) after a state of epoch {self.plan.epoch} was loaded: training starts over. "
                "To go on, begin with train_data.epoch: for epoch in range(train_data.epoch, num_epochs)",
                RuntimeWarning,
                stacklevel=3,
            )
        if epoch != self.plan.epoch or self.position.touched:
            self._move_to(epoch, on_purpose=True)
        else:
            self._follow_world()
        if self.watcher is not None:
            self.watcher.begin_epoch(epoch)

    def adopt_seed(self, seed: int | None) -> None:
        """Draw plans from rank 0's ``seed``, unless the user chose a seed, rank 0 has none, or the run has begun."""
        if self.chosen_seed:
            return
        if self.ranks.here()[1] > 1:
            [seed] = self.ranks.meet(SEED, _NO_SEED if seed is None else int(seed))[0].tolist()
        begun = self._resumed_from is not None or self.plan.epoch > 0 or self.position.touched
        if seed is None or seed in (_NO_SEED, self.seed) or begun:
            return
        self.seed = int(seed)
        self._open(self._draw(0, None, self.memory))

    def begin_pass(self, loader: Delivery | None) -> tuple[int, Position]:
        """The epoch and position of a pass that starts now: the next epoch's if the current one was trained on."""
        self._driven = True
        if self.position.touched or self.position.complete:
            self._move_to(self.plan.epoch + 1, on_purpose=False, loader=loader)
        else:
            self._follow_world()
        if self.update_outside_graph is None and "torch._dynamo" in sys.modules:
            takes_reason = "reason" in inspect.signature(torch.compiler.disable).parameters  # newer than torch 2.6
            why = {"reason": OUTSIDE} if takes_reason else {}
            self.update_outside_graph = torch.compiler.disable(self.update, **why)  # type: ignore[no-untyped-call]
        if self.watcher is not None:
            self.watcher.begin_epoch(self.plan.epoch)
        return self.plan.epoch, self.position

    @property
    def length(self) -> int:
        """How many indices the next pass hands out on this rank; after an epoch's end, the length of the next epoch.

        A single process knows it as soon as the loop has ended, unless a wrapper of the loader may still hold batches.
        Several ranks know it once they have exchanged their scores, when all of them start the epoch.
        """
        position = self.position
        if position.part.world == 1 and position.in_step and position.loop_is_over and position.complete:
            if self._upcoming is None:
                self._booking.flush()
                self._learn_batches(self.position.loader)
                memory = self.memory_ahead()
                self._note_history()
                self._upcoming = self._draw(self.plan.epoch + 1, self.plan, memory)
            return len(self._upcoming)
        return len(self.position.part)

    def steps(self, batch_size: int, drop_last: bool) -> int:
        """How many steps the next pass makes if every epoch has as many as full data with this batch size.

        While a loop runs, and in a resumed epoch, it is the number of steps of the current pass.
        """
        position = self.position
        full = -(-self.plan.total // position.part.world)
        of_epoch = full // batch_size if drop_last else -(-full // batch_size)
        if not of_epoch:
            raise ValueError(
                f"batch_size={batch_size} is more than the {full} samples of full data on each rank, and "
                "drop_last=True drops them all: use smaller batches, or drop_last=False"
            )
        if position.loop_is_over and position.complete:
            return of_epoch  # of the next epoch
        return position.steps_left(of_epoch, batch_size if drop_last else None)

    @property
    def progress_in_epoch(self) -> tuple[int, int]:
        """(samples done, samples in all) of the current epoch, over all ranks."""
        part = self.position.part
        return part.done(self.position.done), part.done(self.position.total)

    def _move_to(self, epoch: int, on_purpose: bool, loader: Delivery | None = None) -> None:
        """Close the current epoch and open ``epoch``; ``loader`` is the one that starts a pass over it, if any."""
        before, late = self.position, None if on_purpose else LateBatches.of(self.plan, self.position)
        drawn_for = self._batch_size
        if before.touched:
            self._learn_batches(before.loader)
        self._learn_batches(loader)
        upcoming, self._resumed_from = self._upcoming, None
        self._finish(on_purpose)
        with self.timed():
            if upcoming is None or upcoming.epoch != epoch or drawn_for != self._batch_size:
                upcoming = self._draw(epoch, self.plan, self.memory)
            self._open(upcoming)
        self.position.follow(before, on_purpose)
        self._late = late

    def _finish(self, on_purpose: bool) -> None:
        """Close the current epoch: settle its scores, its statistics, and what the method remembers of it."""
        with self.timed():
            self._note_history()
            self._booking.close(on_purpose)
            everyone = self._share_scores()
            if self.score_history is not None:
                self._keep_scores(*self._order_done_first(everyone))
            self._note_noise(self.plan)
            self._warn_once_of_noise()
            self.table.warn_once_of_rejected()
            self._observe(self.plan, self._seen_in_epoch(), self.memory)
        if self.watcher is not None and self._seen_in_epoch():
            self.watcher.end_epoch(self.plan, self.table.numpy())

    def _keep_scores(self, plan: EpochPlan, done: int) -> None:
        """Enter the scores of a plan's first ``done`` samples into the history, if one is kept."""
        if self.score_history is not None and done:
            self.score_history.write(plan.epoch, np.asarray(plan.order[:done]), self.table.numpy())

    def _observe(self, plan: EpochPlan, done: int, memory: Memory) -> None:
        """Let the method update its memory after the first ``done`` samples of a plan were trained."""
        if memory and done:
            trained = np.asarray(plan.order[:done])
            self.method.observe(self.table.numpy(), np.unique(trained) if plan.repeats else trained, memory)

    def memory_ahead(self) -> dict[str, NDArray[np.float32]]:
        """The method's memory as it will be when this epoch is over."""
        memory = {name: values.copy() for name, values in self.memory.items()}
        self._observe(self.plan, self._seen_in_epoch(), memory)
        return memory

    def _draw(self, epoch: int, before: EpochPlan | None, memory: Memory) -> EpochPlan:
        """The plan of ``epoch``, which comes after the plan ``before``."""
        rng = generator(self.seed, epoch)
        weights = Weights.ones(self.size)
        if epoch in self.pruning:
            last = None if before is None else before.by_sample
            saved = self._history.saved_before(epoch)
            about = Epoch(epoch, self.pruning, self.num_epochs, saved, last, memory, self._global_batch)
            weights = self.method.select(self.table.numpy(), about, rng)
        return shuffled(epoch, weights, rng, self.order, self._global_batch)

    @property
    def _global_batch(self) -> int:
        return self._batch_size * self.ranks.here()[1]

    def _learn_batches(self, loader: Delivery | None) -> None:
        """Fit later plans to the batches of this loader, if their size is known."""
        if loader is not None and loader.batch_size is not None:
            self._batch_size = 0 if loader.drop_last or loader.keeps_steps else loader.batch_size

    def _open(self, plan: EpochPlan, resumed_at: int = 0, batches: int = 0, passed_over: int = 0) -> None:
        """Make ``plan`` current, without its first ``resumed_at`` entries, which were trained on before."""
        rank, world = self.ranks.here()
        if world not in (1, self._agreed_world):
            kept = 0 if self.score_history is None else self.score_history.rows
            arguments = {"num_epochs": self.num_epochs, "pruned epochs": self.pruning, "epochs of history": kept}
            exchange.agree(self.ranks, MADE, {**self.identity(), **arguments})
            self._agreed_world = world
        part = Slice(plan.order, rank, world, resumed_at)
        self.plan = plan
        self.position = Position(part, self.size, repeats=plan.repeats, batches=batches, passed_over=passed_over)
        if self.by_index:
            self.position.marks(self.table.values.device)  # before anything is compiled
        last = getattr(self, "_booking", None)
        self._booking = Booking(plan, self.position, self.table, self.by_index, last)
        self._upcoming = self._late = self._choice = None
        self.announce(self.seed, plan.epoch, len(part), rank, world)

    def _follow_world(self) -> None:
        """Slice the plan anew if the process group was started after the plan was made."""
        if self.ranks.here()[1] != self.position.part.world:
            before = self.position
            self._open(self.plan, before.part.start, before.batches, before.passed_over)

    def _share_scores(self, call: int = NEW_EPOCH) -> exchange.Everyone | None:
        """Give every rank the scores of all ranks; None in a single process."""
        if self.position.part.world == 1:
            return None
        unshared = int(self.table.rejected) - self._shared_rejected
        noted = self.left_out() if self.method.refreshes else np.zeros(0, np.int64)
        everyone = exchange.share_scores(self.ranks, call, self.plan, self.position, self.table, unshared, noted)
        self._shared_rejected += everyone.rejected
        self.table.rejected.fill_(self._shared_rejected)
        return everyone

    # -- the training step ---------------------------------------------------------------------------------------

    def update(self, loss: torch.Tensor, index: torch.Tensor | None, score: torch.Tensor) -> torch.Tensor:
        """Record one score per sample and return the weighted mean of the losses."""
        started = time.perf_counter()
        self._upcoming = self._resumed_from = None
        if self.chooses:
            loss, index, score = self._as_whole_batch(loss, index, score)
        if self.table.values.device != loss.device:
            self.table.move_to(loss.device)
        if index is None:
            mean = self._booking.update(loss, score)
        else:
            mean = self._update_named(loss, index.to(loss.device, torch.int64), score)
        self.seconds += time.perf_counter() - started
        return mean

    def update_in_graph(self, loss: torch.Tensor, index: torch.Tensor, score: torch.Tensor) -> torch.Tensor:
        """``update`` for named samples inside compiled code: tensor operations only."""
        if self.table.values.device != loss.device:
            self.table.move_to(loss.device)
        return self._booking.update_named(loss, index, score)

    def _update_named(self, loss: torch.Tensor, index: torch.Tensor, score: torch.Tensor) -> torch.Tensor:
        self.by_index = True
        if self._late is not None and self._late.claim(index, self.plan, self.position):
            return self._update_late(self._late, loss, index, score)
        mean = self._booking.update_named(loss, index, score)
        position = self.position
        if not self._driven and position.batches > 1 and len(position.part) - position.cursor < len(index):
            self._driven = True  # said once
            warnings.warn(FORGOTTEN.format(epoch=self.plan.epoch), RuntimeWarning, stacklevel=4)
        return mean

    def _update_late(
        self, late: LateBatches, loss: torch.Tensor, index: torch.Tensor, score: torch.Tensor
    ) -> torch.Tensor:
        """Record a batch of the previous epoch, with the weights of that epoch."""
        position = Position(Slice(late.plan.order), self.size)
        mean = Booking(late.plan, position, self.table).update_named(loss, index, score)
        if self.score_history is not None:
            self.score_history.amend(late.plan.epoch, index.cpu().numpy(), self.table.numpy())
        done = self._history[late.plan.epoch]
        self._history.change(late.plan.epoch, seen=min(done.seen + position.done, done.kept))
        return mean

    def mean_as_losses(
        self, loss: torch.Tensor, index: torch.Tensor | None, score: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(losses, scores) with the batch's mean as each sample's score, and as its loss if ``loss`` is one number."""
        if isinstance(loss, torch.Tensor) and loss.dim() == 0 and loss.is_floating_point():
            loss = loss.expand(self.position.batch_in_hand() if index is None else len(index))
        values = loss if score is None else score
        return loss, values.detach().mean().expand(values.shape)

    @property
    def loss(self) -> torch.Tensor | None:
        """The last batch's mean loss on the scale of full data; None before the first update."""
        return self._booking.loss()

    def weights_of(self, index: torch.Tensor) -> torch.Tensor:
        """The weights of these samples in this epoch."""
        return self._booking.weights_of(index)

    def flush(self) -> None:
        """Write all scores recorded so far into the table."""
        self._booking.flush()

    # -- choosing within a batch, and scores of samples outside the plan -------------------------------------------

    @property
    def chooses(self) -> bool:
        """Whether the method chooses within the current batch."""
        method, epoch = self.method, self.plan.epoch
        if not isinstance(method, BatchMethod) or epoch not in self.pruning:
            return False
        return method.chooses(epoch / self.num_epochs, self.position.batches)

    def choose(
        self, loss: torch.Tensor, index: torch.Tensor | None, gradients: Gradients | None = None
    ) -> torch.Tensor:
        """The positions to train on in the batch with these losses.

        The random draw depends on the seed and the batch's place in training.
        """
        assert isinstance(self.method, BatchMethod)
        part = self.position.part
        place = part.start + self.position.done * part.world + part.rank
        entropy = np.random.SeedSequence((self.seed, self.plan.epoch, place)).generate_state(1, np.uint64)
        chance = torch.Generator(loss.device).manual_seed(int(entropy[0] >> np.uint64(1)))
        positions = self.method.choose(loss, chance, gradients)
        self._choice = Choice(positions, loss, index)
        return positions

    def _as_whole_batch(
        self, loss: torch.Tensor, index: torch.Tensor | None, score: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """(losses, index, scores) of the whole batch, from the losses of its chosen part; the mean loss is the same."""
        choice = self._choice
        if choice is None:
            raise RuntimeError(
                f"method {self.method.info.name!r} trains on a part of this batch, but update() was called without "
                "choose(): if train_data.chooses, chosen = train_data.choose(losses of the batch), then update(losses "
                "of x[chosen])"
            )
        choice.check(loss, index)
        self._choice = None
        if index is not None:
            strangers = choice.strangers(index.to(loss.device))
            if loss.device.type == "cpu" and strangers:
                raise DriftError(
                    "index names other samples than those that choose() returned: update() must follow the choose() of "
                    f"the same batch, with index[chosen]. {REMEDY}"
                )
            self._booking.count_strays(strangers)
        self.position.pass_over(choice.passed_over)
        return choice.spread(loss), choice.index, choice.renewed(score)

    def left_out_here(self) -> NDArray[np.int64]:
        """This rank's share of the samples that the plan leaves out."""
        return exchange.share_of(self.left_out(), *self.ranks.here())

    def note(self, score: torch.Tensor, index: torch.Tensor) -> None:
        """Store scores of samples outside the plan that belong to this rank's share."""
        strangers = np.setdiff1d(index.cpu().numpy(), self.left_out_here())
        if len(strangers):
            raise ValueError(
                f"index: sample {strangers[0]} is in this epoch's plan, or in another rank's share of those left out: "
                "note() is only for the samples that train_data.left_out names on this rank"
            )
        self._upcoming = self._resumed_from = None
        self.flush()
        self.table.move_to(score.device)
        self.table.write(index, score)

    # -- what was learned ----------------------------------------------------------------------------------------

    def left_out(self) -> NDArray[np.int64]:
        """The samples that the current plan leaves out, ascending."""
        absent = np.ones(self.size, bool)
        absent[self.plan.indices] = False
        return np.flatnonzero(absent)

    def scores(self) -> NDArray[np.float32]:
        """The score table as it stands, read-only."""
        self.flush()
        view: NDArray[np.float32] = self.table.numpy().view()
        view.setflags(write=False)
        return view

    def stats(self) -> Stats:
        """Samples seen and saved so far, and what is expected in all."""
        self.flush()
        self._note_history()
        if self.position.part.world == 1 and self.position.complete:
            self._note_noise(self.plan)
        within = isinstance(self.method, BatchMethod)  # its plans are full: it saves within batches
        plan = self.plan if within or self._upcoming is None else self._upcoming
        latest = EpochStats(plan.epoch, plan.total, len(plan), seen=0)
        expected = self._history.expected_saving(latest, self.pruning, self.num_epochs)
        guess = self.method.expected_saving(self.pruning, self.num_epochs)
        return Stats(
            epochs=self._history.in_order(),
            num_epochs=self.num_epochs,
            size=self.size,
            expected_saving=guess if expected is None else expected,
            rejected=int(self.table.rejected),
            seconds=self.seconds,
        )

    def _note_history(self, seen: int | None = None, passed_over: int | None = None) -> None:
        """Enter the current epoch into the history; counts that are not passed in assume that all ranks are alike."""
        plan = self.plan
        seen = self._seen_in_epoch() if seen is None else seen
        passed_over = self.position.passed_over if passed_over is None else passed_over
        self._history.enter(EpochStats(plan.epoch, plan.total, len(plan) - passed_over, seen - passed_over))

    def _note_noise(self, plan: EpochPlan) -> None:
        """Enter the noise factor of a finished epoch, computed from its samples' current scores."""
        if plan.epoch in self._history:
            size = self.method.squared_norms(self.table.numpy())
            self._history.change(plan.epoch, noise=plan.by_sample.noise(size))

    def _warn_once_of_noise(self) -> None:
        """Warn, once, if the epoch was so noisy that the model is likely to suffer."""
        last = self._history.get(self.plan.epoch)
        if self._warned or last is None or last.noise is None or last.noise <= MUCH_NOISE:
            return
        self._warned = True  # said once
        if self.ranks.here()[0] == 0:
            warnings.warn(NOISY.format(epoch=last.epoch, noise=last.noise), RuntimeWarning, stacklevel=2)

    def _seen_in_epoch(self) -> int:
        """Samples of the current plan trained on so far, by all ranks."""
        return self.position.part.done(self.position.done)

    # -- stopping and going on -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The whole run as tensors and plain values; with several ranks all of them must call it."""
        self.flush()
        everyone = self._share_scores(STATE)
        position = self.position
        plan, done = self._order_done_first(everyone)
        passed_over = position.passed_over if everyone is None else everyone.passed_over
        self._note_history(done, passed_over)
        if position.touched:
            self._learn_batches(position.loader)
        if self.watcher is not None and position.touched and position.complete:
            self.watcher.end_epoch(self.plan, self.table.numpy())
        snapshot = state.Snapshot(
            plan=plan,
            done=done,
            batches=position.batches if everyone is None else everyone.batches,
            complete=position.complete if everyone is None else everyone.complete,
            passed_over=passed_over,
            batch_size=self._batch_size,
            scores=self.table.values,
            rejected=int(self.table.rejected),
            history=self._history,
            memory=self.memory,
            score_history=self.score_history,
        )
        return state.write(snapshot, self.identity(), self.method.many_weights)

    def _order_done_first(self, everyone: exchange.Everyone | None) -> tuple[EpochPlan, int]:
        """(the plan, the number of entries done), with the plan reordered so that the entries done come first."""
        part = self.position.part
        if everyone.in_order if everyone is not None else not (self.position.by_index or self.position.compiled):
            return self.plan, part.done(self.position.done)
        left = len(self.plan) - part.start
        back = self.position.entries_back()
        if everyone is not None:
            back = exchange.share_entries(self.ranks, self.position, left)
        done = int(np.count_nonzero(back))
        if back[:done].all():
            return self.plan, part.start + done
        before, rest = self.plan.indices[: part.start], self.plan.indices[part.start :]
        return replace(self.plan, order=Order(np.concatenate([before, rest[back], rest[~back]]))), part.start + done

    def load_state_dict(self, saved: dict[str, Any], stay: bool = False) -> None:
        """Resume from the state, or raise and change nothing; with ``stay`` do not leave a complete epoch."""
        if isinstance(saved, dict) and saved.get("checksum", self) == self._resumed_from:
            return  # a StatefulDataLoader loads the state into its data set too, after the user has done so
        identity = self.identity()
        if not self.chosen_seed:
            identity["seed"] = state.seed_of(saved, self.seed)
        snapshot = state.read(saved, identity, self.memory)
        if self.ranks.here()[1] > 1:
            place = {"epoch": snapshot.plan.epoch, "samples done": snapshot.done, "checksum": saved["checksum"]}
            exchange.agree(self.ranks, LOAD, {**identity, **place})
        self.seed = identity["seed"]
        self.table.restore(snapshot.scores, snapshot.rejected)
        self._shared_rejected = snapshot.rejected
        self._history = History(snapshot.history)
        self.memory = snapshot.memory
        self._batch_size = snapshot.batch_size
        if self.score_history is not None:
            self.score_history.take_over(snapshot.score_history or ScoreHistory(1, self.size))
        if snapshot.complete and not stay:
            self._note_noise(snapshot.plan)
            self._keep_scores(snapshot.plan, snapshot.done)
            self._observe(snapshot.plan, snapshot.done, self.memory)
            self._open(self._draw(snapshot.plan.epoch + 1, snapshot.plan, self.memory))
        else:
            self._open(snapshot.plan, snapshot.done, snapshot.batches, snapshot.passed_over)
        self._resumed_from = saved["checksum"]

    def identity(self) -> dict[str, Any]:
        """The arguments that two runs must share to have the same plans."""
        return {
            "size": self.size,
            "seed": self.seed,
            "method": self.method.info.name,
            "options": self.method.options(),
            "momentum": self.table.momentum,
        }

    def __getstate__(self) -> dict[str, Any]:
        """Everything for a copy, with the scores recorded so far and the loader's batch size, but no watcher."""
        self.flush()
        if self.position.touched:
            self._learn_batches(self.position.loader)
        return {**vars(self), "update_outside_graph": None, "watcher": None}
