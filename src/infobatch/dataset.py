"""InfoBatch, the facade: a dataset that knows which of its samples are worth training on."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import Dataset, get_worker_info

from . import methods
from .core.checks import check_dataset, check_flag, check_loss, check_share, check_whole, checked_index, is_real
from .core.choice import checked_gradients
from .core.delivery import spawns_worker
from .core.history import ScoreHistory, in_bytes
from .core.method import BatchMethod, Gradients, Method
from .core.plan import EpochPlan, pruning_epochs
from .core.sampler import PlanSampler, StepSampler
from .core.scores import ScoreTable, above_mean
from .core.stats import Stats
from .core.turn import read
from .distributed.ranks import Ranks
from .forecast import Forecast, budget_memory, forecast
from .run import OUTSIDE, Run, Watcher
from .sample_table import SampleTable
from .samples import with_index

DEFAULT_RATIO, DEFAULT_DELTA = 0.5, 0.875
LOG = logging.getLogger(__name__)


class MapStyle(Protocol):
    """Anything with a length whose samples are read by index: a list, a tensor, a Hugging Face data set."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


class InfoBatch(Dataset[Any]):
    """Wraps a map-style dataset so that each epoch trains on fewer samples and reaches the same model.

    Each epoch, samples with a low score (their last loss) are left out at random and those that stand in for them
    weigh more, so that the expected gradient stays the same; the first and the last epochs use all data. Attributes of
    the wrapped dataset stay readable (a type checker finds them at ``train_data.dataset``).

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
        num_epochs: the number of epochs you will train; any epoch after them is on full data.
        ratio: the share of the low-score samples to prune, in [0, 1).
        delta: the share of the epochs in which to prune, in [0, 1]; the epochs after them are on full data
            (annealing). None: 0.875, or 1 for methods that do not anneal.
        method: a name from ``methods.list()``, or a method object.
        seed: the random seed of the plans, which depend on the epoch and the scores as well. None: the framework's
            seed, where an integration knows it, else 0.
        index_key: carry each sample's index in the sample: under this key for dicts, as a last element for tuples.
        saving: instead of ``ratio``, the share of full training to save in all.
        rescale: raise the weights of the samples that stand in for pruned ones; None: the method's own choice.
        anneal: train on full data for the last epochs; None: yes if ``delta`` is given or the method anneals. False
            overrules ``delta``.
        warmup: the number of epochs at the start without pruning; the first epoch is never pruned.
        momentum: m in score = m·new + (1 - m)·old; 1 keeps the last loss.
        strata: a label per sample; the pruning rule is then applied to the samples of each label separately.
        order: an iterable of indices, such as your own sampler, iterated anew each epoch in place of the uniform
            shuffle.
        seed_samples: make each sample's random draws, such as its augmentation, depend on the seed, the epoch and the
            sample alone, so that a resumed run repeats them: see docs/bit-for-bit.md.
        history: keep every sample's scores of all epochs (True), or of this many last epochs, for :meth:`table` and
            :meth:`report`: one byte per sample and epoch.
        group: the process group whose ranks share the data, such as a device mesh's data-parallel group; None: all
            ranks.
        patience: how many seconds ranks wait for each other at the start of an epoch before an error is raised.
        options: further options of the method.
    """

    def __init__(
        self,
        dataset: Dataset[Any] | MapStyle,
        num_epochs: int,
        ratio: float = DEFAULT_RATIO,
        delta: float | None = None,
        *,
        method: str | Method = "infobatch",
        seed: int | None = None,
        index_key: str | None = None,
        saving: float | None = None,
        rescale: bool | None = None,
        anneal: bool | None = None,
        warmup: int = 0,
        momentum: float = 1.0,
        strata: ArrayLike | None = None,
        order: Iterable[int] | None = None,
        seed_samples: bool = False,
        history: bool | int = False,
        group: Any = None,
        patience: float = 120.0,
        **options: Any,
    ) -> None:
        if isinstance(dataset, InfoBatch):
            raise TypeError("dataset is already an InfoBatch: wrap the data only once")
        check_dataset(dataset)
        check_whole("num_epochs", num_epochs, 1, "the number of epochs you will train")
        if seed is not None:
            check_whole("seed", seed, 0, "any number from 0 on")
        check_whole("warmup", warmup, 0, "epochs at the start without pruning")
        if delta is not None:
            check_share("delta", delta, "the share of epochs with pruning; the paper uses 0.875")
        check_share("momentum", momentum, "m in m·new + (1 - m)·old; 1 keeps the last loss")
        check_flag("rescale", rescale, "whether samples that stand in for pruned ones weigh more")
        check_flag("anneal", anneal, "whether the last epochs are on full data")
        check_flag("seed_samples", seed_samples, "whether each sample's random draws have a seed of their own")
        if seed_samples and order is not None:
            raise ValueError(
                "seed_samples=True cannot be used with order=, which may repeat a sample within an epoch: the sample "
                "would be augmented in the same way every time. Leave one of them out"
            )
        if momentum == 0:
            raise ValueError("momentum must be above 0: with 0 no score would ever change; 1 keeps the last loss")
        if index_key is not None and not isinstance(index_key, str):
            raise TypeError(f"index_key must be a string, the name of the index in a sample, got {index_key!r}")
        if not is_real(patience) or patience <= 0:
            raise ValueError(f"patience must be a number of seconds above 0, got {patience!r}")
        if saving is not None and ratio != DEFAULT_RATIO:
            raise ValueError(f"pass ratio or saving, not both: got ratio={ratio} and saving={saving}")
        self.dataset: Any = dataset
        self.index_key = index_key
        self._seed_samples = bool(seed_samples)
        self.num_epochs = num_epochs
        self.method = _make_method(method, ratio, options, saving=saving, rescale=rescale, strata=strata)
        if anneal is None:
            anneal = delta is not None or self.method.info.anneals
        share = (DEFAULT_DELTA if delta is None else delta) if anneal else 1.0
        pruning = pruning_epochs(num_epochs, share, max(warmup, self.method.info.full_first))
        self.method.check(len(self), pruning, num_epochs)
        self._sampler = PlanSampler(self, self._seed_samples)
        self._run = Run(
            size=len(self),
            num_epochs=num_epochs,
            pruning=pruning,
            method=self.method,
            seed=0 if seed is None else int(seed),
            chosen_seed=seed is not None,
            table=ScoreTable(len(self), float(momentum)),
            order=order,
            by_index=index_key is not None,
            ranks=Ranks(group, float(patience)),
            announce=self._sampler.show,
            score_history=_score_history(history, len(self), int(num_epochs)),
        )
        self._sampler.planner = self._run

    # -- the data ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        if self._seed_samples:
            return self.__getitems__([index])[0]
        sample = self.dataset[index]
        return sample if self.index_key is None else with_index(sample, index, self.index_key)

    def __getitems__(self, indices: list[int]) -> Sequence[Any]:
        """A batch's samples at once, by the wrapped dataset's own ``__getitems__`` if it has one."""
        dataset = self.dataset
        samples: Sequence[Any]
        if self._seed_samples:
            samples = read(dataset, indices)
        else:
            fetch = getattr(dataset, "__getitems__", None)
            samples = fetch(indices) if fetch else [dataset[i] for i in indices]
        if self.index_key is None:
            return samples
        return [with_index(sample, i, self.index_key) for sample, i in zip(samples, indices, strict=True)]

    if not TYPE_CHECKING:  # so that a type checker finds a misspelt name

        def __getattr__(self, name: str) -> Any:
            """Attributes of the wrapped dataset stay readable."""
            if name == "dataset" or (name.startswith("__") and name.endswith("__")):
                raise AttributeError(name)
            return getattr(self.dataset, name)

    def __getstate__(self) -> dict[str, Any]:
        """Everything for a copy; for a worker process that a loader spawns, only what reading samples needs."""
        if spawns_worker():
            return {"dataset": self.dataset, "index_key": self.index_key, "_seed_samples": self._seed_samples}
        return vars(self).copy()

    def __repr__(self) -> str:
        return (
            f"InfoBatch({type(self.dataset).__name__} of {len(self)}, method={self.method.info.name!r}, "
            f"epoch {self.epoch} of {self.num_epochs}, kept {len(self.plan)}"
            f"{'' if self._run.score_history is None else f', {self._run.score_history}'})"
        )

    # -- the epoch -----------------------------------------------------------------------------------------------

    @property
    def sampler(self) -> PlanSampler:
        """The sampler to give to the loader: it hands out the current plan's indices."""
        return self._sampler

    def batches(self, batch_size: int, drop_last: bool = False) -> StepSampler:
        """A batch sampler with as many steps in every epoch as full data has: batches shrink, steps stay.

        ``DataLoader(train_data, batch_sampler=train_data.batches(128))``. ``update`` then returns a loss on the scale
        of full data, so that gradients, learning rate and schedule are those of full data and nothing has to be paced.
        With ``drop_last`` there are as many steps as full data has whole batches.
        """
        check_whole("batch_size", batch_size, 1, "the batch size of full data")
        check_flag("drop_last", drop_last, "whether full data's last, short batch is dropped")
        return StepSampler(self._sampler, int(batch_size), bool(drop_last))

    @property
    def keeps_steps(self) -> bool:
        """Whether this epoch is trained in as many steps as full data has: see :meth:`batches`."""
        return self._run.position.keeps_steps

    @property
    def plan(self) -> EpochPlan:
        """The current epoch's samples and weights."""
        return self._run.plan

    @property
    def epoch(self) -> int:
        """The number of the current epoch, counted from 0."""
        return self.plan.epoch

    @property
    def position(self) -> tuple[int, int]:
        """(samples done, samples in all) of the current epoch, over all ranks."""
        return self._run.progress_in_epoch

    @property
    def batches_done(self) -> int:
        """How many batches of the current epoch this rank has passed to ``update``."""
        return self._run.position.batches

    @property
    def progress(self) -> float:
        """How much of training is done, in [0, 1], counted in epochs."""
        done, total = self.position
        return min((self.epoch + done / max(total, 1)) / self.num_epochs, 1.0)

    def set_epoch(self, epoch: int) -> None:
        """Make the plan of epoch ``epoch`` the current one; from then on ``len(sampler)`` is that plan's length.

        Called for the current epoch, it does nothing if the epoch has not been trained on yet or was just resumed;
        otherwise it starts the epoch anew. With several ranks all of them must call it.
        """
        self._run.set_epoch(epoch)

    def adopt_seed(self, seed: int | None) -> None:
        """Draw the plans from a framework's seed: for integrations, before training starts.

        Nothing changes if ``InfoBatch(seed=...)`` was given, if ``seed`` is None, or if the run has begun or was
        resumed, because it then keeps its own seed. With several ranks all of them must call it, and rank 0's seed is
        used. ``train_data.sampler.seed`` is the seed in use.
        """
        if seed is not None:
            check_whole("seed", seed, 0, "the framework's seed")
        self._run.adopt_seed(seed)

    # -- the step ------------------------------------------------------------------------------------------------

    def update(
        self, loss: torch.Tensor, index: torch.Tensor | None = None, *, score: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Store one loss per sample as its score and return the weighted mean loss, to call ``backward()`` on.

        Without ``index`` the batch is known by its position in the plan, and anything that shifts positions raises an
        error. ``index`` names the samples instead. ``score`` is stored in place of the loss. A method that scores whole
        batches, such as ``"bls"``, also accepts the batch's mean loss, a single number.
        """
        run = self._run
        if self.method.scores_batches:
            loss, score = run.mean_as_losses(loss, index, score)
        check_loss("loss", loss)
        if score is None:
            score = loss
        else:
            check_loss("score", score, like=loss)
        if self.method.compares_in_batch:
            score = above_mean(score)
        if torch.compiler.is_compiling():
            if index is not None and not isinstance(self.method, BatchMethod):
                return run.update_in_graph(loss, index, score)
            if run.update_outside_graph is None:
                raise RuntimeError(OUTSIDE)
            return run.update_outside_graph(loss, index, score)
        if index is not None:
            index = checked_index(index, len(run.table), loss)
        return run.update(loss, index, score)

    @property
    def loss(self) -> torch.Tensor:
        """The last batch's mean loss on the scale of full data, to log; NaN before the first update.

        It is Σ weight·loss / Σ weight, detached. ``update`` returns a larger value in pruned epochs, because the batch
        also stands for pruned samples. Only looking at the value waits for the device.
        """
        loss = self._run.loss
        return torch.tensor(torch.nan) if loss is None else loss

    def follow(self, loader: Any) -> Iterator[Any]:
        """Yield the loader's batches and count them as they are delivered: ``for x, y in train_data.follow(loader)``.

        Positions are then known without reading private attributes of torch's loader, and also if the loader is
        a wrapper that fetches ahead. The loader still takes its samples from ``train_data.sampler``.
        """
        return self._sampler.follow(loader)

    @property
    def chooses(self) -> bool:
        """Whether to train on only part of the current batch: if so, compute its losses and call ``choose``."""
        return self._run.chooses

    def choose(
        self,
        loss: torch.Tensor,
        index: torch.Tensor | None = None,
        *,
        gradients: torch.Tensor | Gradients | None = None,
    ) -> torch.Tensor:
        """The positions in the batch of the samples to train on, given the losses of the whole batch.

        For methods that choose within batches. While ``chooses`` is True, compute the losses without gradients, call
        ``choose``, and call ``update`` with the losses of the chosen samples only. Otherwise ``choose`` returns all
        positions and need not be called. If you name samples, ``choose`` takes the ``index`` of the whole batch and
        ``update`` that of the chosen samples. ``gradients``, for methods that choose by gradient: a row per sample, or
        factors whose outer product is the gradient, such as (errors, features) for a last layer.
        """
        check_loss("loss", loss)
        run, loss = self._run, loss.detach()
        if not run.chooses:
            return torch.arange(len(loss), device=loss.device)
        if index is not None:
            index = checked_index(index, len(run.table), loss)
        if isinstance(self.method, BatchMethod) and self.method.needs_gradients:
            gradients = checked_gradients(gradients, loss, self.method.info.name)
        else:
            gradients = None
        with run.timed():
            return run.choose(loss, index, gradients)

    # -- what was learned ----------------------------------------------------------------------------------------

    @property
    def left_out(self) -> NDArray[np.int64]:
        """The samples that the current epoch leaves out; with several ranks, this rank's share of them."""
        return self._run.left_out_here()

    def note(self, score: torch.Tensor, index: torch.Tensor) -> None:
        """Store new scores of ``left_out`` samples without training on them, for methods that ask for it.

        Call it within the epoch that left them out, with losses computed without gradients.
        """
        check_loss("score", score)
        index = checked_index(index, len(self._run.table), score)
        if not self.method.refreshes:
            raise RuntimeError(f"method {self.method.info.name!r} does not use scores of samples that were left out")
        with self._run.timed():
            self._run.note(score, index.to(score.device, torch.int64))

    def weights_of(self, index: torch.Tensor) -> torch.Tensor:
        """The factors by which ``update`` multiplies these samples' losses in this epoch; 0 for one that is left out.

        For a loss that is not a mean over samples: pass the losses per sample to ``update``, and apply these weights
        yourself. With :meth:`batches`, weights are divided by the plan's mean weight, as in ``update``. With several
        ranks, if the plan does not divide evenly, the sample that only pads a rank's last batch has weight 0 too.
        """
        return self._run.weights_of(checked_index(index, len(self._run.table)))

    @property
    def scores(self) -> NDArray[np.float32]:
        """The score table, read-only; NaN for a sample that has not been scored."""
        return self._run.scores()

    @property
    def stats(self) -> Stats:
        """Samples seen and saved so far, and what is expected in all."""
        return self._run.stats()

    def summary(self) -> str:
        """The statistics as a text to print."""
        return str(self.stats)

    def forecast(self) -> Forecast:
        """An estimate from the scores so far, to print: what each method would save over the whole run, at which noise.

        Call it after one or two epochs. Later epochs are assumed to prune more than the next one, by as much as was
        measured on other trainings. ``stats.expected_saving``, of this run's own method, assumes instead that the share
        pruned last stays.
        """
        run, epochs = self._run, self.stats.epochs
        complete = run.position.complete
        over = [epoch for epoch in epochs if epoch.epoch != self.epoch or complete]
        memory = run.memory_ahead() if complete else run.memory
        return forecast(self.scores, self.num_epochs, len(over), budget_memory(self.method.info.name, memory), run.seed)

    def watch(self, watcher: Watcher) -> None:
        """Call ``watcher`` when epochs begin and end, in this process and on this rank; copies have no watcher."""
        self._run.watcher = watcher

    def table(self) -> SampleTable:
        """A table with a row per sample: its index and last score and, where ``history`` is kept, how often it was
        trained and left out, the mean and variability of its scores, how often it was forgotten, and how suspect its
        label is. With several ranks all of them must call it.
        """
        from .run_page import read_table

        return read_table(self._run.state_dict())

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        render: Callable[[int], Any] | None = None,
        labels: ArrayLike | None = None,
        samples: Iterable[int] = (),
        title: str | None = None,
    ) -> None:
        """Write a page about this run: what was saved and, where ``history`` is kept, what every sample did.

        ``render`` returns what to show for a sample's index: a picture (PIL, array or tensor), a text, the bytes of a
        sound, or :class:`infobatch.Html`; without it, pictures and texts are taken from the data set where it has some.
        ``labels``, one per sample, are shown and can be filtered by. ``samples`` are shown whatever they did. With
        several ranks all of them must call it, and rank 0 writes the page.
        """
        from .run_page import write_page

        state, epochs = self._run.state_dict(), self._run.stats().epochs
        if self._run.ranks.here()[0] == 0:
            write_page(
                state,
                path,
                render=render,
                labels=labels,
                samples=samples,
                dataset=self.dataset,
                epochs=epochs,
                title=title,
            )

    # -- stopping and going on -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume bit for bit, also in the middle of an epoch: tensors and plain numbers.

        With several ranks all of them must call it (it gathers the scores of all); every rank gets the same state.
        """
        if get_worker_info() is not None:
            return {}  # a StatefulDataLoader asks its workers with every batch; their copies of the data have no run
        return self._run.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any], *, stay: bool = False) -> None:
        """Resume where the state was saved, on any number of ranks; the loader delivers the rest of that epoch.

        ``num_epochs`` and ``delta`` may differ from the saved run's (to train longer); the arguments that plans are
        drawn from may not. Without a ``seed`` of its own, the run takes the state's. If the saved epoch was complete,
        the next epoch becomes the current one, or with ``stay`` the saved one does.
        """
        if get_worker_info() is None:
            self._run.load_state_dict(state_dict, stay)


def _score_history(history: bool | int, size: int, num_epochs: int) -> ScoreHistory | None:
    """An empty history with room for all epochs, or for the last ``history``; None if no history is wanted."""
    if isinstance(history, bool | np.bool_):
        rows = num_epochs if history else 0
    else:
        check_whole("history", history, 1, "the number of last epochs to keep; True keeps all, False none")
        rows = min(int(history), num_epochs)
    if not rows:
        return None
    LOG.info("history: %d epochs of %d samples take %s", rows, size, in_bytes(rows * size))
    return ScoreHistory(rows, size)


def _make_method(method: str | Method, ratio: float, options: dict[str, Any], **common: Any) -> Method:
    options = {**options, **{name: value for name, value in common.items() if value is not None}}
    if ratio != DEFAULT_RATIO or (isinstance(method, str) and "ratio" in methods.options_of(method)):
        options["ratio"] = ratio
    if isinstance(method, str):
        return methods.create(method, **options)
    if not isinstance(method, Method):
        raise TypeError(f"method must be a name from methods.list() or a methods.Method object, got {method!r}")
    if options:
        raise TypeError(f"method is an object that already has its options: pass {sorted(options)} when you make it")
    return method
