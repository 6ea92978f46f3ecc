"""Learning-rate schedules that follow training, not steps.

A pruned epoch has fewer steps. A schedule that counts steps would then not reach its end: OneCycle would stop at a
quarter of its peak instead of zero. ``paced`` lets the schedule see progress in units of full epochs.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau


class Trained(Protocol):
    """What a schedule reads about training; an InfoBatch has all of it."""

    @property
    def epoch(self) -> int: ...
    @property
    def position(self) -> tuple[int, int]: ...
    @property
    def batches_done(self) -> int: ...


def paced(scheduler: LRScheduler, train_data: Trained, steps_per_epoch: int | None = None) -> PacedScheduler:
    """Wrap a step-based scheduler so that its trajectory over training is the one of full data.

    Make the inner scheduler as for full data (OneCycle with the full ``total_steps``), and call the result's ``step()``
    after every optimiser step. When the share p of epoch e is done, the schedule stands at step ⌊S·(e + p)⌋, where S is
    the number of steps in a full epoch. S is learned from the first epoch, which is always full, or given as
    ``steps_per_epoch``. Steps that a ``GradScaler`` skips do not advance it. Schedulers that step once per epoch need
    no wrapping.
    """
    return PacedScheduler(scheduler, train_data, steps_per_epoch)


class PacedScheduler(LRScheduler):
    """See :func:`paced`. All attributes but ``step`` and the state are the inner scheduler's."""

    def __init__(self, scheduler: LRScheduler, train_data: Trained, steps_per_epoch: int | None = None) -> None:
        # LRScheduler.__init__ is left out on purpose: it would take a first step and hook the optimiser once more.
        if not isinstance(scheduler, LRScheduler) or isinstance(scheduler, ReduceLROnPlateau):
            raise TypeError(
                f"scheduler must be a torch scheduler that steps without a metric, got {type(scheduler).__name__}: "
                "ReduceLROnPlateau follows a metric per epoch and needs no pacing"
            )
        if steps_per_epoch is not None:
            whole = hasattr(steps_per_epoch, "__index__") and not isinstance(steps_per_epoch, bool)
            if not whole or steps_per_epoch < 1:
                raise ValueError(
                    f"steps_per_epoch must be a whole number from 1 on, the optimiser steps of a full epoch, "
                    f"got {steps_per_epoch!r}"
                )
            steps_per_epoch = int(steps_per_epoch)
        self.scheduler = scheduler
        self.steps = 0  # how many steps the inner scheduler has made
        self.steps_per_epoch = steps_per_epoch
        self._train_data = train_data
        # Learned in the first epoch: samples and batches per optimiser step, and (samples done, samples in all, batches
        # done) at its latest step.
        self._group: int | None = None
        self._batches: int | None = None
        self._first: tuple[int, int, int] | None = None
        self._optimizer_stepped = False
        optimizer: Optimizer = scheduler.optimizer
        optimizer.register_step_post_hook(self._note_optimizer_step)

    def step(self, epoch: int | None = None) -> None:
        """Advance to where training stands; nothing happens if the optimiser made no step since the last call."""
        if epoch is not None:
            raise ValueError(
                f"step() of a paced schedule takes no epoch, got {epoch!r}: it follows train_data, so call step() alone"
            )
        at_start = self._train_data.epoch == 0 and self._train_data.position[0] > 0
        if at_start:
            self._learn()
        if not self._optimizer_stepped:
            return
        self._optimizer_stepped = False
        if getattr(self._train_data, "keeps_steps", False):
            target = self.steps + 1  # every epoch has the steps of full data: there is nothing to pace
        else:
            target = self._first_target() if at_start and self.steps_per_epoch is None else self._target()
        while self.steps < target:
            self.steps += 1
            self.scheduler.step()

    def _first_target(self) -> int:
        """Where the schedule stands in the first epoch: one step per group."""
        assert self._group is not None
        return -(-self._train_data.position[0] // self._group)

    def _target(self) -> int:
        full = self._full_steps()
        done, total = self._train_data.position
        if self._group is not None and self._first is not None and self._batches != 1:
            whole, rest = divmod(self._first[1], self._group)
            if rest and full == whole:  # the short last group of an epoch is not stepped: count the whole ones only
                done, total = done // self._group, total // self._group
        return full * self._train_data.epoch + full * done // max(total, 1)

    def _learn(self) -> None:
        """Learn the samples and batches per step: the smallest distance between two steps, but for a short last one."""
        done, total = self._train_data.position
        batches = self._train_data.batches_done
        done_before, _, batches_before = self._first or (0, 0, 0)
        if done > done_before:
            if self._group is None or done < total:
                self._group = min(done - done_before, self._group or total)
            self._batches = min(batches - batches_before, self._batches or batches)
        self._first = done, total, batches

    def _full_steps(self) -> int:
        if self.steps_per_epoch is not None:
            return self.steps_per_epoch
        if self._first is None or self._group is None:
            raise RuntimeError(
                "the steps of a full epoch are not known, because this schedule did not see the first epoch: "
                "pass steps_per_epoch to paced(), or load the state_dict() the schedule had when training stopped"
            )
        done, total, _ = self._first
        if self._batches != 1 and 0 < total - done < self._group:
            return done // self._group  # a short last group of several batches is dropped
        return -(-total // self._group)

    def _note_optimizer_step(self, *_: Any) -> None:
        self._optimizer_stepped = True

    def get_last_lr(self) -> list[Any]:
        return self.scheduler.get_last_lr()

    def get_lr(self) -> list[Any]:
        return self.scheduler.get_lr()

    def state_dict(self) -> dict[str, Any]:
        return {
            "scheduler": self.scheduler.state_dict(),
            "steps": self.steps,
            "steps_per_epoch": self.steps_per_epoch,
            "group": self._group,
            "batches": self._batches,
            "first": self._first,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if missing := sorted(set(self.state_dict()) - set(state_dict)):
            raise ValueError(
                f"state_dict is not that of a paced schedule (it has no {', '.join(missing)}) and was not loaded. If "
                "it is the inner scheduler's own state, load it into that scheduler before you wrap it, and pass "
                "steps_per_epoch: scheduler.load_state_dict(state); paced(scheduler, train_data, steps_per_epoch=...)"
            )
        self.scheduler.load_state_dict(state_dict["scheduler"])
        self.steps = state_dict["steps"]
        self.steps_per_epoch = state_dict["steps_per_epoch"]
        self._group = state_dict["group"]
        self._batches = state_dict["batches"]
        self._first = state_dict["first"]

    def __getattr__(self, name: str) -> Any:
        if name == "scheduler" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return getattr(self.scheduler, name)
