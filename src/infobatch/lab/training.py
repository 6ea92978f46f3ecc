"""The one training loop of the lab: a recipe, a method and a seed in, a record out."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from ..dataset import InfoBatch
from ..report.records import SCORE_EDGES, RunRecord, Tick
from ..schedule import paced
from . import optimisers
from .method import MethodSpec
from .recipe import Recipe

WARM_UP_STEPS = 10
TICK_STEPS = 8
SHOWN = 12  # of the hardest and of the most pruned samples, so many are named in the record

Watch = Callable[[Tick], None]


class Task(Protocol):
    """What is trained: data, a model, one loss per sample, and a figure of merit."""

    metric: str
    higher_is_better: bool

    @property
    def train(self) -> Dataset[Any]:
        """The training data, a map-style dataset."""

    def collate(self, batch: Any) -> Any:
        """A batch of what the dataset gives."""

    def model(self, seed: int) -> nn.Module:
        """The model as it starts."""

    def losses(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | tuple[Tensor, Tensor]:
        """One loss per sample; with a second tensor where the score is something else."""

    def evaluate(self, model: nn.Module) -> float:
        """The metric on held-out data."""


class Training:
    """One model on its way: the loop that a user of the library would write."""

    def __init__(self, task: Task, recipe: Recipe, method: MethodSpec, seed: int) -> None:
        self.task, self.recipe, self.method, self.seed = task, recipe, method, seed
        options = {"delta": recipe.delta, "warmup": recipe.warmup, "momentum": recipe.score_momentum, **method.options}
        self.train_data = InfoBatch(task.train, recipe.epochs, method=method.name, seed=seed, **options)
        # Given a generator, neither the loader nor the augmentation touches torch's global random state.
        self.generator = torch.Generator().manual_seed(seed)
        self.loader = DataLoader(
            self.train_data,
            batch_size=recipe.batch_size,
            sampler=self.train_data.sampler,
            collate_fn=task.collate,
            num_workers=recipe.workers,
            generator=torch.Generator().manual_seed(seed),
        )
        self.model = task.model(seed)
        self.optimizer = optimisers.optimizer(recipe, self.model)
        steps = -(-len(self.train_data) // recipe.batch_size)
        self.scheduler = paced(optimisers.schedule(recipe, self.optimizer, recipe.epochs * steps), self.train_data)
        self.scaler = torch.amp.GradScaler("cuda", enabled=recipe.precision == "fp16")
        self.left_out = np.zeros(len(self.train_data), np.int32)  # how often each sample was
        self.history: dict[str, list[Any]] = {"kept": [], "losses": [], "times": [], "values": [], "histograms": []}

    @property
    def epoch(self) -> int:
        """The next epoch to train."""
        return len(self.history["kept"])

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return self.epoch == self.recipe.epochs

    def warm_up(self) -> None:
        """A few steps of a copy, before any clock runs: the first ones pay for torch's own set-up."""
        model, generator = copy.deepcopy(self.model), torch.Generator().manual_seed(0)
        indices = list(range(min(self.recipe.batch_size, len(self.train_data))))
        batch = self.task.collate(self.train_data.__getitems__(indices))
        for _ in range(WARM_UP_STEPS):
            found = self.task.losses(model, batch, generator)
            (found[0] if isinstance(found, tuple) else found).mean().backward()  # type: ignore[no-untyped-call]

    def train_epoch(self, watch: Watch = lambda tick: None) -> None:
        """One pass over the epoch's plan. The clock runs while the plan is made and worked off, not in ``watch``."""
        epoch, seconds, since = self.epoch, 0.0, time.perf_counter()
        self.train_data.set_epoch(epoch)
        kept, done, weighted = (
            len(self.train_data.sampler),
            0,
            torch.zeros((), device=next(self.model.parameters()).device),
        )
        before = sum(self.history["times"])
        self.model.train()
        for step, batch in enumerate(self.loader):
            found = self.task.losses(self.model, batch, self.generator)
            losses, score = found if isinstance(found, tuple) else (found, None)
            loss = self.train_data.update(losses, score=score)
            self.optimizer.zero_grad()
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            if self.recipe.clip:
                self.scaler.unscale_(self.optimizer)
                nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.scheduler.step()
            done += len(losses)
            weighted += loss.detach() * len(losses)
            if step % TICK_STEPS == 0 or done == kept:
                # Σ weight · loss over the plan estimates Σ loss over all the data: dividing by their number makes
                # the losses of all runs comparable. In the middle of an epoch it is extrapolated.
                mean = weighted.item() / len(self.train_data) * (kept / done)
                seconds += time.perf_counter() - since
                watch(self._tick(epoch, done, kept, mean, before + seconds))
                since = time.perf_counter()
        seconds += time.perf_counter() - since
        self._note(done, weighted.item() / len(self.train_data), seconds)

    def _note(self, kept: int, loss: float, seconds: float) -> None:
        self.left_out += 1
        self.left_out[self.train_data.plan.indices] -= 1
        scores = self.train_data.scores
        counts = np.histogram(np.clip(scores[~np.isnan(scores)], SCORE_EDGES[0], SCORE_EDGES[-1]), SCORE_EDGES)[0]
        found = (kept, loss, seconds, self.task.evaluate(self.model), counts.tolist())
        for values, value in zip(self.history.values(), found, strict=True):
            values.append(value)

    def _tick(self, epoch: int, done: int, kept: int, loss: float, seconds: float) -> Tick:
        total, epochs = len(self.train_data), self.recipe.epochs
        return Tick(self.method.label, self.seed, epoch, epochs, done, kept, total, loss, seconds)

    def record(self, environment: dict[str, Any]) -> RunRecord:
        """What is kept of the run."""
        scores = self.train_data.scores
        return RunRecord(
            method=self.method.label,
            seed=self.seed,
            metric=self.task.metric,
            higher_is_better=self.task.higher_is_better,
            total=len(self.train_data),
            saving=self.train_data.stats.saving,
            overhead=self.train_data.stats.seconds,
            hardest=_top(np.nan_to_num(scores, nan=-np.inf), SHOWN),
            most_pruned=_top(self.left_out, SHOWN),
            recipe=self.recipe.as_data(),
            environment=environment,
            scores=tuple(scores.tolist()),
            **{name: tuple(values) for name, values in self.history.items()},
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything to go on from the end of the last epoch."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "scaler": self.scaler.state_dict(),
            "train_data": self.train_data.state_dict(),
            "generators": [self.generator.get_state(), self.loader.generator.get_state()],
            "left_out": torch.from_numpy(self.left_out.copy()),
            "history": copy.deepcopy(self.history),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the state was taken."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.scaler.load_state_dict(state["scaler"])
        self.train_data.load_state_dict(state["train_data"])
        for generator, found in zip((self.generator, self.loader.generator), state["generators"], strict=True):
            generator.set_state(found)
        self.left_out = state["left_out"].numpy().copy()
        self.history = copy.deepcopy(state["history"])


def _top(values: NDArray[Any], count: int) -> tuple[tuple[int, float], ...]:
    """The samples of the highest values, and these."""
    first = np.argsort(-values, kind="stable")[:count]
    return tuple((int(i), float(values[i])) for i in first)
