"""InfoBatch, the facade: a dataset that knows which of its samples are worth training on."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.context import get_spawning_popen
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import Dataset

from . import methods
from .checks import check_dataset, check_loss, check_share, check_whole, checked_index
from .core.anneal import pruning_epochs
from .core.ledger import EpochLedger
from .core.method import Epoch, Method
from .core.plan import EpochPlan, generator, shuffled
from .core.sampler import PlanSampler
from .core.scores import ScoreTable
from .core.state import (
    VERSION,
    check_same,
    history_from_state,
    history_state,
    migrated,
    plan_from_state,
    plan_state,
)
from .core.stats import EpochStats, Stats
from .core.weights import Weights
from .distributed import shard
from .samples import with_index


class InfoBatch(Dataset[Any]):
    """Wraps a map-style dataset so that each epoch trains on fewer samples and reaches the same model.

    Each epoch, samples with a low score (their last loss) are left out at random and those that stand in for them
    weigh more, so that the expected gradient stays the same; the first and the last epochs use all data.

    >>> import torch, infobatch
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> data = TensorDataset(torch.arange(8.0))
    >>> train_data = infobatch.InfoBatch(data, num_epochs=2)
    >>> loader = DataLoader(train_data, batch_size=4, sampler=train_data.sampler)
    >>> for (x,) in loader:
    ...     loss = train_data.update(x)  # one loss per sample in, their weighted mean out
    >>> train_data.scores.tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]

    Args:
        dataset: the data: anything with ``__len__`` and ``__getitem__``.
        num_epochs: how long training will be; after that the data is full.
        ratio: the share of the low-score samples to prune, in [0, 1).
        delta: the share of the epochs in which to prune, in [0, 1]; the rest is full data (annealing).
        method: a name from ``methods.list()``, or a method object.
        seed: what the plans are drawn from, together with the epoch and the scores.
        index_key: carry each sample's index in the sample, under this key.
        saving: instead of ``ratio``, the share of full training to save in all.
        rescale: weight the samples that stand in for pruned ones; None: as the method does.
        anneal: train on full data for the last epochs; None: as the method does.
        warmup: epochs at the start without pruning; the first one never is.
        momentum: m in score = m·new + (1 - m)·old; 1 keeps the last loss.
        strata: a label per sample, so that the rule is applied within each label by itself.
        order: an iterable of indices, drawn anew each epoch, in place of the uniform shuffle.
        options: further options of the method.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        num_epochs: int,
        ratio: float = 0.5,
        delta: float = 0.875,
        *,
        method: str | Method = "infobatch",
        seed: int = 0,
        index_key: str | None = None,
        saving: float | None = None,
        rescale: bool | None = None,
        anneal: bool | None = None,
        warmup: int = 0,
        momentum: float = 1.0,
        strata: ArrayLike | None = None,
        order: Iterable[int] | None = None,
        **options: Any,
    ) -> None:
        if isinstance(dataset, InfoBatch):
            raise TypeError("dataset is an InfoBatch already: wrap the data once")
        check_dataset(dataset)
        check_whole("num_epochs", num_epochs, 1, "the number of epochs you will train")
        check_whole("seed", seed, 0, "any number from 0 on")
        check_whole("warmup", warmup, 0, "epochs at the start without pruning")
        check_share("delta", delta, "the share of epochs with pruning; the paper uses 0.875")
        check_share("momentum", momentum, "m in m·new + (1 - m)·old; 1 keeps the last loss")
        if momentum == 0:
            raise ValueError("momentum must be above 0: with 0 no score would ever change; 1 keeps the last loss")
        if index_key is not None and not isinstance(index_key, str):
            raise TypeError(f"index_key must be a string, the name of the index in a sample, got {index_key!r}")
        if saving is not None and ratio != 0.5:
            raise ValueError(f"give ratio or saving, not both: got ratio={ratio} and saving={saving}")
        self.dataset = dataset
        self.index_key = index_key
        self.num_epochs = num_epochs
        self.delta = float(delta)
        self.seed = seed
        self.method = _method(method, ratio, options, saving=saving, rescale=rescale, strata=strata)
        annealed = self.method.info.anneals if anneal is None else anneal
        self._pruning = pruning_epochs(num_epochs, delta if annealed else 1.0, warmup)
        self.method.check(len(self), self._pruning, num_epochs)
        self._order = order
        self._table = ScoreTable(len(self), float(momentum))
        self._by_index = index_key is not None
        self._history: dict[int, EpochStats] = {}
        self._seconds = 0.0
        rank, world = shard.here()
        self._sampler = PlanSampler(self, seed, rank, world)
        self._go_to(0)

    # -- the data ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Any:
        sample = self.dataset[index]
        return sample if self.index_key is None else with_index(sample, index, self.index_key)

    def __getitems__(self, indices: list[int]) -> Sequence[Any]:
        """A batch's samples at once, by the wrapped dataset's own means where it has them."""
        fetch = getattr(self.dataset, "__getitems__", None)
        samples: Sequence[Any] = fetch(indices) if fetch else [self.dataset[i] for i in indices]
        if self.index_key is None:
            return samples
        return [with_index(sample, i, self.index_key) for sample, i in zip(samples, indices, strict=True)]

    def __getattr__(self, name: str) -> Any:
        """Attributes of the wrapped dataset stay readable."""
        if name == "dataset" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __getstate__(self) -> dict[str, Any]:
        """All of it for a copy; for a loader's spawned worker only what fetching needs."""
        if get_spawning_popen() is not None:
            return {"dataset": self.dataset, "index_key": self.index_key}
        return vars(self).copy()

    def __repr__(self) -> str:
        return (
            f"InfoBatch({type(self.dataset).__name__} of {len(self)}, method={self.method.info.name!r}, "
            f"epoch {self.epoch} of {self.num_epochs}, kept {len(self.plan)})"
        )

    # -- the epoch -----------------------------------------------------------------------------------------------

    @property
    def sampler(self) -> PlanSampler:
        """Hands out the current plan; give it to the loader."""
        return self._sampler

    @property
    def epoch(self) -> int:
        """The epoch whose plan is current."""
        return self.plan.epoch

    @property
    def progress(self) -> float:
        """How much of training is done, in [0, 1], counted in epochs."""
        done, total = self.position
        return min((self.epoch + done / total) / self.num_epochs, 1.0)

    @property
    def position(self) -> tuple[int, int]:
        """(samples done, samples in all) of the current epoch, over all ranks."""
        ledger, kept = self._ledger, len(self.plan)
        done = self._resumed_at + ledger.done * ledger.part.world
        total = self._resumed_at + ledger.deliverable * ledger.part.world
        return min(done, kept), min(total, kept)

    def set_epoch(self, epoch: int) -> None:
        """Make epoch ``epoch``'s plan the current one; from then on ``len(sampler)`` is true.

        Calling it for the current epoch does nothing as long as the epoch has not been trained on, or was
        just resumed; afterwards it starts the epoch anew.
        """
        check_whole("epoch", epoch, 0, "epochs are counted from 0")
        if epoch != self.epoch or self._ledger.touched:
            self._finish()
            self._go_to(epoch)

    def _begin_pass(self) -> Iterator[int]:
        """Called by the sampler's ``iter()``: the indices of the current or the next epoch."""
        if self._ledger.touched or self._ledger.complete:
            epoch = self.epoch + 1
            self._finish()
            self._go_to(epoch)
        return self._ledger.indices(self._sampler)

    def _finish(self) -> None:
        """Close the current epoch's books."""
        started = time.perf_counter()
        self._note_history()
        try:
            self._ledger.close()
        finally:
            self._seconds += time.perf_counter() - started

    def _go_to(self, epoch: int) -> None:
        """Draw the plan of ``epoch`` and open its ledger."""
        started = time.perf_counter()
        rng = generator(self.seed, epoch)
        weights = Weights.ones(len(self))
        if epoch in self._pruning:
            pruned_before = sum(e.saved for e in self._history.values() if e.epoch < epoch)
            weights = self.method.select(
                self._table.numpy(), Epoch(epoch, self._pruning, self.num_epochs, pruned_before), rng
            )
        self._open(shuffled(epoch, weights, rng, self._order))
        self._seconds += time.perf_counter() - started

    def _open(self, plan: EpochPlan, resumed_at: int = 0) -> None:
        """Make ``plan`` current, less its first ``resumed_at`` entries, which were trained on before."""
        rank, world = shard.here()
        part = shard.part(plan.indices[resumed_at:], rank, world)
        self.plan = plan
        self._resumed_at = resumed_at
        self._ledger = EpochLedger(part, plan.by_sample, self._table, self._by_index)
        self._sampler.show(plan.epoch, len(part.indices), rank, world)

    # -- the step ------------------------------------------------------------------------------------------------

    def update(
        self, loss: torch.Tensor, index: torch.Tensor | None = None, *, score: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Book one loss per sample and return their weighted mean, to call ``backward()`` on.

        Without ``index`` the batch is known by its position in the plan, and anything that shifts positions raises.
        ``index`` names the samples. ``score`` is booked in place of the loss.
        """
        check_loss("loss", loss)
        if score is None:
            score = loss
        else:
            check_loss("score", score, like=loss)
        if index is not None:
            return self._update_by_index(loss, index, score)
        started = time.perf_counter()
        if self._table.values.device != loss.device:
            self._table.move_to(loss.device)
        mean = self._ledger.update(loss, score)
        self._seconds += time.perf_counter() - started
        return mean

    def _update_by_index(self, loss: torch.Tensor, index: torch.Tensor, score: torch.Tensor) -> torch.Tensor:
        if self._table.values.device != loss.device:
            self._table.move_to(loss.device)
        if torch.compiler.is_compiling():
            return self._ledger.update_by_index(loss, index, score)
        started = time.perf_counter()
        index = checked_index(index, loss, len(self))
        self._by_index = True
        mean = self._ledger.update_by_index(loss, index.to(loss.device, torch.int64), score)
        self._seconds += time.perf_counter() - started
        return mean

    # -- what was learned ----------------------------------------------------------------------------------------

    @property
    def scores(self) -> NDArray[np.float32]:
        """The score table, read-only; NaN for a sample that has not been scored."""
        self._ledger.flush()
        view: NDArray[np.float32] = self._table.numpy().view()
        view.setflags(write=False)
        return view

    @property
    def stats(self) -> Stats:
        """Samples seen and saved so far, and what is expected in all."""
        self._ledger.flush()
        self._note_history()
        epochs = tuple(self._history[e] for e in sorted(self._history))
        return Stats(
            epochs=epochs,
            num_epochs=self.num_epochs,
            size=len(self),
            expected_saving=self._expected_saving(epochs),
            rejected=int(self._table.rejected),
            seconds=self._seconds,
        )

    def summary(self) -> str:
        """The statistics as a text to print."""
        return str(self.stats)

    def _note_history(self) -> None:
        """Enter the current epoch, unless it was only looked at."""
        seen = self._seen_in_epoch()
        if seen:
            self._history[self.epoch] = EpochStats(self.epoch, self.plan.total, len(self.plan), seen)

    def _seen_in_epoch(self) -> int:
        """Samples of the current plan trained on so far, by all ranks."""
        return min(self._resumed_at + self._ledger.seen * self._ledger.part.world, len(self.plan))

    def _expected_saving(self, epochs: tuple[EpochStats, ...]) -> float:
        """What was saved, and the last pruned epoch's share for those to come; the method's guess before any."""
        pruned = [e for e in epochs if e.epoch in self._pruning]
        if not pruned:
            return self.method.expected_saving(self._pruning, self.num_epochs)
        to_come = len(range(pruned[-1].epoch + 1, self._pruning.stop))
        saved = sum(e.saved / e.total for e in pruned)
        return (saved + to_come * pruned[-1].saved / pruned[-1].total) / self.num_epochs

    # -- stopping and going on -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on bit for bit, also from the middle of an epoch: tensors and plain numbers."""
        self._ledger.flush()
        self._note_history()
        return {
            "version": VERSION,
            **self._identity(),
            "plan": plan_state(self.plan),
            "done": self._seen_in_epoch(),
            "complete": self._ledger.complete,
            "scores": self._table.values.cpu().clone(),
            "rejected": int(self._table.rejected),
            "history": history_state(self._history),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where the state was taken; the loader then delivers what was left of that epoch.

        ``num_epochs`` and ``delta`` may differ from the saved run's (to train longer); what the plans are drawn from
        may not. If the saved epoch was complete, the next one is current afterwards.
        """
        state = migrated(state_dict)
        check_same(state, self._identity())
        device = self._table.values.device
        self._table.values = state["scores"].to(device, copy=True)
        self._table.rejected = torch.tensor(state["rejected"], device=device)
        self._history = history_from_state(state["history"])
        plan = plan_from_state(state["plan"], len(self))
        if state["complete"]:
            self._go_to(plan.epoch + 1)
        else:
            self._open(plan, resumed_at=state["done"])

    def _identity(self) -> dict[str, Any]:
        """What two runs must share to have the same plans."""
        return {
            "size": len(self),
            "seed": self.seed,
            "method": self.method.info.name,
            "options": self.method.options(),
            "momentum": self._table.momentum,
        }


def _method(method: str | Method, ratio: float, options: dict[str, Any], **common: Any) -> Method:
    if not isinstance(method, str):
        given = {**options, **{name: value for name, value in common.items() if value is not None}}
        if not isinstance(method, Method) or given or ratio != 0.5:
            raise TypeError(
                f"method must be a name or a methods.Method object, which has its options already; got {method!r} "
                f"with {['ratio'] * (ratio != 0.5) + sorted(given)}"
            )
        return method
    given = {name: value for name, value in common.items() if value is not None}
    return methods.create(method, ratio=ratio, **given, **options)
