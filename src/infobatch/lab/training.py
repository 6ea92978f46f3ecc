"""The training loop of the lab: it takes a recipe, a method and a seed, and makes a record."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader

from ..core.method import BatchMethod, Gradients
from ..dataset import InfoBatch
from ..records import RunRecord, Tick
from ..schedule import paced
from ..static.collect import in_eval_mode, last_layer
from . import optimisers
from .method import MethodSpec
from .recipe import Recipe
from .scores import count_scores, take_highest
from .tasks.device import wait_for
from .tasks.mixing import MixedLosses, PairLosses
from .tasks.task import Losses, Task

if TYPE_CHECKING:
    from .coreset import ChosenSubset

WARM_UP_STEPS = 10
TICK_STEPS = 8
# Times of two runs can be compared if they took turns in this share of epochs: an interruption costs one or two.
IN_TURN = 0.9

Watch = Callable[[Tick], None]


class Training:
    """The training of one model, with the loop that a user of the library would write.

    ``chosen`` are the samples of a static method, all of which are trained on. With ``tested=False`` the held-out data
    is never looked at.
    """

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        method: MethodSpec,
        seed: int,
        chosen: ChosenSubset | None = None,
        *,
        tested: bool = True,
    ) -> None:
        self.task, self.recipe, self.method, self.seed, self.chosen = task, recipe, method, seed, chosen
        self.tested = tested
        settings: dict[str, Any] = {"warmup": recipe.warmup, "momentum": recipe.score_momentum}
        if method.anneals:
            settings["delta"] = recipe.delta
        self.selected: NDArray[np.float64] | None = None  # weights of the chosen samples, if they differ
        if chosen is None:
            self.train_data = InfoBatch(
                task.train, recipe.epochs, method=method.name, seed=seed, **{**settings, **method.options}
            )
        else:
            subset, weights = chosen.selection.subset(task.train), chosen.selection.weights
            self.selected = None if (weights == weights[0]).all() else weights / weights.mean()
            self.train_data = InfoBatch(subset, recipe.epochs, method="full", seed=seed, **settings)
        self.total = len(task.train)  # type: ignore[arg-type]
        # With their own generators, the loader and the augmentation leave torch's global random state alone.
        self.generator = torch.Generator().manual_seed(seed)
        batches: dict[str, Any] = {"batch_size": recipe.batch_size, "sampler": self.train_data.sampler}
        if method.steps_stay:
            batches = {"batch_sampler": self.train_data.batches(recipe.batch_size)}
        self.loader = DataLoader(
            self.train_data,
            **batches,
            collate_fn=task.collate,
            num_workers=recipe.workers,
            generator=torch.Generator().manual_seed(seed),
        )
        self.model = task.model(seed)
        self.average: AveragedModel | None = None
        if decay := getattr(recipe, "ema", 0.0):  # a key of recipes that judge averaged weights
            rule = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
            self.average = AveragedModel(self.model, multi_avg_fn=rule, use_buffers=True)
        self.optimizer = optimisers.optimizer(recipe, self.model)
        steps = -(-len(self.train_data) // recipe.batch_size)
        self.scheduler = paced(optimisers.schedule(recipe, self.optimizer, recipe.epochs * steps), self.train_data)
        self.scaler = torch.amp.GradScaler("cuda", enabled=recipe.precision == "fp16")
        self.left_out = np.zeros(self.total, np.int32)  # how often each sample was left out
        self.beside: Counter[str] = Counter()  # by method, the number of epochs in which it took turns with this run
        self.history: dict[str, list[Any]] = {
            "kept": [],
            "losses": [],
            "times": [],
            "values": [],
            "histograms": [],
            "noise": [],
        }

    @property
    def epoch(self) -> int:
        """The next epoch to train."""
        return len(self.history["kept"])

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return self.epoch == self.recipe.epochs

    def warm_up(self) -> None:
        """Make a few steps with a copy, before any clock runs: the first steps pay for torch's own set-up."""
        model, generator = copy.deepcopy(self.model), torch.Generator().manual_seed(0)
        indices = list(range(min(self.recipe.batch_size, len(self.train_data))))
        batch = self.task.collate(self.train_data.__getitems__(indices))
        for _ in range(WARM_UP_STEPS):
            losses = self.task.losses(model, batch, generator)
            (losses[0] if isinstance(losses, tuple) else losses).mean().backward()  # type: ignore[no-untyped-call]

    def train_epoch(self, watch: Watch = lambda tick: None) -> None:
        """Train one epoch by its plan. The clock runs while the plan is made and trained on, not in ``watch``."""
        epoch, seconds, since = self.epoch, 0.0, time.perf_counter()
        self.train_data.set_epoch(epoch)
        expected = self.train_data.stats.expected_saving
        kept, done, trained = len(self.train_data.sampler), 0, 0
        weighted = torch.zeros((), device=next(self.model.parameters()).device)
        before, weigh_pairs = sum(self.history["times"]), PairLosses(self.train_data.plan)
        weight_sum = float(self.train_data.plan.weights.sum())
        if self.method.steps_stay:
            weight_sum = kept  # the returned losses are on the scale of full data already
        self.model.train()
        for step, batch in enumerate(self.loader):
            batch_losses, passed_over = self._losses_to_train_on(batch)
            if isinstance(batch_losses, MixedLosses):
                batch_losses = weigh_pairs(batch_losses, done)
            losses, score = batch_losses if isinstance(batch_losses, tuple) else (batch_losses, None)
            if self.selected is not None:
                losses, score = self._weigh_losses(losses, done), losses.detach() if score is None else score
            loss = self.train_data.update(losses, score=score)
            self.optimizer.zero_grad()
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            if self.recipe.clip:
                self.scaler.unscale_(self.optimizer)
                nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.scheduler.step()
            if self.average is not None:
                self.average.update_parameters(self.model)
            trained += len(losses)
            done += len(losses) + passed_over
            weighted += loss.detach() * len(losses)
            if step % TICK_STEPS == 0 or done == kept:
                # Σ weight · loss over the plan estimates Σ loss over all the data: divided by Σ weight, the losses
                # of all runs are comparable. In the middle of an epoch the mean is extrapolated.
                mean = weighted.item() / weight_sum * (kept / trained)
                seconds += time.perf_counter() - since
                watch(self._tick(epoch, done, kept, mean, before + seconds, expected))
                since = time.perf_counter()
        self._look_at_left_out()
        wait_for(weighted.device)
        seconds += time.perf_counter() - since
        self._note(trained, weighted.item() / weight_sum * (kept / max(trained, 1)), seconds)

    def _losses_to_train_on(self, batch: Any) -> tuple[Losses, int]:
        """The losses to train on, and the number of samples skipped by a method that chooses within the batch."""
        if not self.train_data.chooses:
            return self.task.losses(self.model, batch, self.generator), 0
        before = self.generator.get_state()
        look, gradients = self._look_at(batch)
        chosen = self.train_data.choose(look, gradients=gradients)
        self.generator.set_state(before)  # augment as in the look
        return self.task.losses(self.model, batch, self.generator, chosen), len(look) - len(chosen)

    def _look_at(self, batch: Any) -> tuple[Tensor, Gradients | None]:
        """A batch's losses, and each sample's last-layer gradient as factors if the method chooses by it.

        For gradients the model is in evaluation mode, and only the loss after the last layer is differentiated.
        """
        method = self.train_data.method
        if not (isinstance(method, BatchMethod) and method.needs_gradients):
            return self._compute_losses(batch), None
        seen: list[tuple[Tensor, Tensor]] = []

        def differentiate(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            torch.set_grad_enabled(True)  # on until the losses are computed
            seen.append((inputs[0], output.requires_grad_()))
            return output

        hook = last_layer(self.model).register_forward_hook(differentiate)
        try:
            with in_eval_mode(self.model):
                losses = self._compute_losses(batch)
        finally:
            hook.remove()
        if len(seen) != 1 or seen[0][1].dim() != 2:
            raise ValueError(
                f"{method.info.name} needs a last layer that runs once per batch, on one vector per sample"
            )
        [(features, logits)] = seen
        return losses.detach(), (*torch.autograd.grad(losses.sum(), logits), features)

    def _look_at_left_out(self) -> None:
        """A forward pass over the samples left out, for methods that need their new losses."""
        if self.train_data.method.refreshes and len(left_out := self.train_data.left_out):
            for part in torch.split(torch.from_numpy(left_out), self.recipe.batch_size):
                batch = self.task.collate(self.train_data.__getitems__(part.tolist()))
                self.train_data.note(self._compute_losses(batch), part)

    @torch.no_grad()
    def _compute_losses(self, batch: Any) -> Tensor:
        """The losses of a batch without scores and gradients."""
        losses = self.task.losses(self.model, batch, self.generator)
        return losses[0] if isinstance(losses, tuple) else losses

    def _note(self, kept: int, loss: float, seconds: float) -> None:
        self.left_out += 1
        self.left_out[self._samples(self.train_data.plan.indices)] -= 1
        scores = self.train_data.scores
        noise = self.train_data.plan.by_sample.noise(scores)  # the same gradient measure for all methods
        row = (kept, loss, seconds, self._judge(), count_scores(scores), noise)
        for values, value in zip(self.history.values(), row, strict=True):
            values.append(value)

    def _judge(self) -> float:
        """The metric after this epoch; NaN if the recipe skips this epoch or the run is not tested."""
        done = self.epoch + 1
        if not self.tested or (done % self.recipe.judge_every and done != self.recipe.epochs):
            return float("nan")
        return self.task.evaluate(self._judged_model)

    @property
    def _judged_model(self) -> nn.Module:
        """The model with the weights that are judged."""
        return self.model if self.average is None else self.average.module

    def _samples(self, indices: NDArray[np.integer]) -> NDArray[np.integer]:
        """Indices into the training data as indices into all the data."""
        return indices if self.chosen is None else self.chosen.selection.indices[indices]

    def _weigh_losses(self, losses: Tensor, done: int) -> Tensor:
        """Multiply the losses of the batch after ``done`` samples by a static method's weights, which average 1."""
        assert self.selected is not None
        weights = self.selected[self.train_data.plan.order[done : done + len(losses)]]
        return losses * torch.from_numpy(weights).to(losses)

    def _tick(self, epoch: int, done: int, kept: int, loss: float, seconds: float, saving: float) -> Tick:
        place = (epoch, self.recipe.epochs, done, kept, self.total)
        return Tick(self.method.label, self.seed, *place, loss, seconds, saving)

    def record(self, environment: dict[str, Any]) -> RunRecord:
        """The record of the finished run."""
        scores = np.full(self.total, np.nan, np.float32)
        scores[self._samples(np.arange(len(self.train_data)))] = self.train_data.scores
        return RunRecord(
            method=self.method.label,
            seed=self.seed,
            metric=self.task.metric,
            higher_is_better=self.task.higher_is_better,
            total=self.total,
            saving=1 - sum(self.history["kept"]) / (self.total * self.recipe.epochs),
            overhead=self.train_data.stats.seconds,
            preparation=0.0 if self.chosen is None else self.chosen.seconds,
            hardest=take_highest(np.nan_to_num(scores, nan=-np.inf)),
            most_pruned=take_highest(self.left_out),
            beside=tuple(label for label, epochs in self.beside.items() if epochs >= IN_TURN * self.recipe.epochs),
            further=tuple(self.task.further(self._judged_model)),
            recipe=self.recipe.as_data(),
            environment=environment,
            scores=tuple(scores.tolist()),
            **{name: tuple(values) for name, values in self.history.items()},
        )

    def state_dict(self) -> dict[str, Any]:
        """The state after the last finished epoch, to go on from."""
        return {
            "model": self.model.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "scaler": self.scaler.state_dict(),
            "train_data": self.train_data.state_dict(),
            "generators": [self.generator.get_state(), self.loader.generator.get_state()],
            "left_out": torch.from_numpy(self.left_out.copy()),
            "history": copy.deepcopy(self.history),
            "beside": dict(self.beside),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.model.load_state_dict(state["model"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.scaler.load_state_dict(state["scaler"])
        self.train_data.load_state_dict(state["train_data"])
        for generator, saved in zip((self.generator, self.loader.generator), state["generators"], strict=True):
            generator.set_state(saved)
        self.left_out = state["left_out"].numpy().copy()
        self.history = copy.deepcopy(state["history"])
        self.beside = Counter(state.get("beside", {}))  # missing in states of older versions
