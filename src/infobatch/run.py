"""One training run: which epoch it is in, the plans, the books, and the state to go on from."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .checks import check_whole
from .core.ledger import Choice, EpochLedger
from .core.method import BatchMethod, Epoch, Method, blank_memory
from .core.plan import EpochPlan, generator, shuffled
from .core.scores import ScoreTable
from .core.slice import Slice
from .core.state import (
    VERSION,
    check_same,
    checksum,
    history_from_state,
    history_state,
    migrated,
    plan_from_state,
    plan_state,
)
from .core.stats import EpochStats, Stats
from .core.weights import Weights
from .distributed import exchange, shard


@dataclass
class Run:
    """Makes each epoch's plan from the scores and keeps the books; the same on every rank.

    ``announce(epoch, samples, rank, world)`` is called whenever another plan or slice becomes current.
    """

    size: int
    num_epochs: int
    pruning: range
    method: Method
    seed: int
    table: ScoreTable
    order: Iterable[int] | None
    by_index: bool
    announce: Callable[[int, int, int, int], None]
    plan: EpochPlan = field(init=False)
    ledger: EpochLedger = field(init=False)
    seconds: float = field(default=0.0, init=False)  # spent in the library itself
    memory: dict[str, NDArray[np.float32]] = field(init=False)
    _history: dict[int, EpochStats] = field(default_factory=dict, init=False)
    _agreed_world: int = field(default=1, init=False)
    _shared_rejected: int = field(default=0, init=False)
    _just_resumed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.memory = blank_memory(self.method, self.size)
        self._go_to(0)

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
        """Make the plan of ``epoch`` current, unless it is and has not been trained on yet."""
        check_whole("epoch", epoch, 0, "epochs are counted from 0")
        epoch = int(epoch)
        if self._just_resumed and epoch < self.plan.epoch:
            warnings.warn(
                f"set_epoch({epoch}) after a state of epoch {self.plan.epoch} was loaded: training starts over. "
                "To go on, begin with train_data.epoch: for epoch in range(train_data.epoch, num_epochs)",
                RuntimeWarning,
                stacklevel=3,
            )
        if epoch != self.plan.epoch or self.ledger.touched:
            self._move_to(epoch, on_purpose=True)
        else:
            self._follow_world()

    def begin_pass(self) -> EpochLedger:
        """The ledger for a pass that starts now: of the next epoch if the current one has been trained on."""
        if self.ledger.touched or self.ledger.complete:
            self._move_to(self.plan.epoch + 1, on_purpose=False)
        else:
            self._follow_world()
        return self.ledger

    @property
    def position(self) -> tuple[int, int]:
        """(samples done, samples in all) of the current epoch, over all ranks."""
        part, (done, _) = self.ledger.part, self.ledger.done
        total = self.ledger.watch.deliverable
        return (
            min(part.start + done * part.world, len(self.plan)),
            min(part.start + total * part.world, len(self.plan)),
        )

    def _move_to(self, epoch: int, on_purpose: bool) -> None:
        """Close the current epoch and open another."""
        before = self.ledger.watch
        self._just_resumed = False
        self._finish()
        self._go_to(epoch, self.plan)
        self.ledger.watch.follow(before, on_purpose)

    def _finish(self) -> None:
        """Close the current epoch's books."""
        with self.timed():
            self._note_history()
            self.ledger.close()
            self._share_scores()
            self.table.warn_once_of_rejected()
            self._observe(self.plan, self._seen_in_epoch())

    def _observe(self, plan: EpochPlan, done: int) -> None:
        """Let the method remember what the first ``done`` samples of a plan brought."""
        if self.memory and done:
            trained = np.asarray(plan.order[:done])
            self.method.observe(self.table.numpy(), np.unique(trained) if plan.repeats else trained, self.memory)

    def _go_to(self, epoch: int, before: EpochPlan | None = None) -> None:
        """Draw the plan of ``epoch``, which comes after the plan ``before``, and open its ledger."""
        with self.timed():
            rng = generator(self.seed, epoch)
            weights = Weights.ones(self.size)
            if epoch in self.pruning:
                pruned_before = sum(e.saved for e in self._history.values() if e.epoch < epoch)
                last = None if before is None else before.by_sample
                about = Epoch(epoch, self.pruning, self.num_epochs, pruned_before, last, self.memory)
                weights = self.method.select(self.table.numpy(), about, rng)
            self._open(shuffled(epoch, weights, rng, self.order))

    def _open(self, plan: EpochPlan, resumed_at: int = 0, batches_before: int = 0, passed_over: int = 0) -> None:
        """Make ``plan`` current, less its first ``resumed_at`` entries, which were trained on before."""
        rank, world = shard.here()
        if world not in (1, self._agreed_world):
            exchange.agree({**self.identity(), "num_epochs": self.num_epochs, "pruned epochs": self.pruning})
            self._agreed_world = world
        part = Slice(plan.order, rank, world, resumed_at)
        self.plan = plan
        self.ledger = EpochLedger(plan, part, self.table, self.by_index, batches_before, passed_over)
        self.announce(plan.epoch, len(part), rank, world)

    def _follow_world(self) -> None:
        """Slice anew if the process group was started after the plan was made."""
        if shard.here()[1] != self.ledger.part.world:
            before = self.ledger
            self._open(self.plan, before.part.start, before.batches_before, before.passed_over_before)

    def _share_scores(self) -> None:
        """Give every rank the scores of all."""
        if self.ledger.part.world > 1:
            unshared = int(self.table.rejected) - self._shared_rejected
            noted = self.left_out() if self.method.refreshes else np.zeros(0, np.int64)
            self._shared_rejected += exchange.share_scores(self.plan, self.ledger, unshared, noted)
            self.table.rejected.fill_(self._shared_rejected)

    # -- choosing within a batch, and beside the plan --------------------------------------------------------------

    @property
    def chooses(self) -> bool:
        """Whether the method chooses within the batches of this epoch."""
        return isinstance(self.method, BatchMethod) and self.plan.epoch in self.pruning

    def choose(self, loss: torch.Tensor, index: torch.Tensor | None) -> torch.Tensor:
        """Positions in the batch with these losses; chance depends on the seed and the batch's place in training."""
        assert isinstance(self.method, BatchMethod)
        ledger = self.ledger
        part, (_, step) = ledger.part, ledger.done
        place = part.start + ledger.seen * part.world + part.rank
        entropy = np.random.SeedSequence((self.seed, self.plan.epoch, place)).generate_state(1, np.uint64)
        chance = torch.Generator(loss.device).manual_seed(int(entropy[0] >> np.uint64(1)))
        positions = self.method.choose(loss, self.plan.epoch / self.num_epochs, step, chance)
        ledger.choice = Choice(positions, loss, index)
        return positions

    def left_out_here(self) -> NDArray[np.int64]:
        """This rank's share of the samples that the plan leaves out."""
        return exchange.share_of(self.left_out(), *shard.here())

    def note(self, score: torch.Tensor, index: torch.Tensor) -> None:
        """Book scores of samples outside the plan, which are this rank's to look after."""
        strangers = np.setdiff1d(index.cpu().numpy(), self.left_out_here())
        if len(strangers):
            raise ValueError(
                f"index: sample {strangers[0]} is in this epoch's plan, or another rank's to look after: note() is for "
                "the samples that train_data.left_out names here"
            )
        self.ledger.flush()
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
        self.ledger.flush()
        view: NDArray[np.float32] = self.table.numpy().view()
        view.setflags(write=False)
        return view

    def stats(self) -> Stats:
        """Samples seen and saved so far, and what is expected in all."""
        self.ledger.flush()
        self._note_history()
        epochs = tuple(self._history[e] for e in sorted(self._history))
        return Stats(
            epochs=epochs,
            num_epochs=self.num_epochs,
            size=self.size,
            expected_saving=self._expected_saving(epochs),
            rejected=int(self.table.rejected),
            seconds=self.seconds,
        )

    def _note_history(self) -> None:
        """Enter the current epoch, unless it was only looked at."""
        if seen := self._seen_in_epoch():
            plan, passed_over = self.plan, self.ledger.passed_over
            self._history[plan.epoch] = EpochStats(plan.epoch, plan.total, len(plan) - passed_over, seen - passed_over)

    def _seen_in_epoch(self) -> int:
        """Samples of the current plan trained on so far, by all ranks."""
        part = self.ledger.part
        return min(part.start + self.ledger.seen * part.world, len(self.plan))

    def _expected_saving(self, epochs: tuple[EpochStats, ...]) -> float:
        """What was saved, and the last pruned epoch's share for those to come; the method's guess before any."""
        pruned = [e for e in epochs if e.epoch in self.pruning]
        if not pruned:
            return self.method.expected_saving(self.pruning, self.num_epochs)
        to_come = len(range(pruned[-1].epoch + 1, self.pruning.stop))
        saved = sum(e.saved / e.total for e in pruned)
        return (saved + to_come * pruned[-1].saved / pruned[-1].total) / self.num_epochs

    # -- stopping and going on -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything above as tensors and plain numbers; a collective call where there are several ranks."""
        self.ledger.flush()
        if self.ledger.part.world > 1:
            exchange.wait_for_all("InfoBatch.state_dict()")
            self._share_scores()
        self._note_history()
        state = {
            "version": VERSION,
            **self.identity(),
            "plan": plan_state(self.plan, self.method.many_weights),
            "done": self._seen_in_epoch(),
            "batches": self.ledger.done[1],
            "complete": self.ledger.complete,
            "scores": self.table.values.cpu().clone(),
            "rejected": int(self.table.rejected),
            "history": history_state(self._history),
            "passed over": self.ledger.passed_over,
            "memory": {name: torch.from_numpy(values.copy()) for name, values in self.memory.items()},
        }
        return {**state, "checksum": checksum(state)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where the state was taken, or raise and change nothing."""
        state = migrated(state_dict)
        check_same(state, self.identity())
        if checksum(state_dict) != state_dict["checksum"]:
            raise ValueError("state_dict is damaged (its checksum does not match) and was not loaded: use an older one")
        if shard.here()[1] > 1:
            place = {"epoch": state["plan"]["epoch"], "samples done": state["done"], "checksum": state["checksum"]}
            exchange.agree({**self.identity(), **place})
        device = self.table.values.device
        self.table.values = state["scores"].to(device, copy=True)
        self.table.rejected = torch.tensor(state["rejected"], device=device)
        self._shared_rejected = state["rejected"]
        self._history = history_from_state(state["history"])
        self.memory = {name: values.cpu().numpy().copy() for name, values in state["memory"].items()}
        plan = plan_from_state(state["plan"], self.size)
        if state["complete"]:
            self._observe(plan, state["done"])
            self._go_to(plan.epoch + 1, plan)
        else:
            self._open(plan, state["done"], state["batches"], state["passed over"])
        self._just_resumed = True

    def identity(self) -> dict[str, Any]:
        """What two runs must share to have the same plans."""
        return {
            "size": self.size,
            "seed": self.seed,
            "method": self.method.info.name,
            "options": self.method.options(),
            "momentum": self.table.momentum,
        }
