"""timm's own training flow, with InfoBatch in it: loader, mixing, criterion, schedule and checkpoints."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from timm.data import FastCollateMixup, Mixup
from timm.data.distributed_sampler import RepeatAugSampler
from timm.loss import BinaryCrossEntropy, JsdCrossEntropy, LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
from timm.models import resume_checkpoint
from timm.scheduler import create_scheduler_v2
from timm.task import ClassificationTask
from timm.utils import CheckpointSaver, NativeScaler, random_seed
from torch import nn
from torch.utils.data import Dataset

from distributed.launch import ROOT, python, torchrun
from infobatch import InfoBatch, PairWeights
from infobatch.core.weights import Weights
from infobatch.integrations.timm import (
    CheckpointState,
    Criterion,
    Target,
    create_loader,
    create_scheduler,
    indexed,
)
from infobatch.lab.data import fashion
from infobatch.methods import Epoch, Method, MethodInfo

CLASSES = 10
SIZE = (1, 28, 28)
PLAIN = {"mean": (0.0,), "std": (1 / 255,), "no_aug": True, "num_workers": 0}  # inputs are the pixels, as floats
CPU = torch.device("cpu")


class Pictures(Dataset):
    """What timm takes for a dataset: PIL images with a label, and a transform to be set."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self.images, self.labels = images, labels
        self.transform: Callable[..., Any] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = Image.fromarray(self.images[index])
        return (self.transform(image) if self.transform else image), int(self.labels[index])


def pictures(size: int) -> Pictures:
    train = fashion.load().train.head(size)
    return Pictures(train.images, train.labels)


def numbered(size: int) -> Pictures:
    """Every pixel of image i is i, and its label is i modulo 10."""
    number = np.arange(size, dtype=np.uint8)
    return Pictures(np.broadcast_to(number[:, None, None], (size, 28, 28)).copy(), number % CLASSES)


@contextmanager
def numpys_chance(seed: int) -> Iterator[None]:
    """timm draws from numpy's global generator: begin at ``seed``, and leave no trace."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


# -- the loader ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("prefetch", [True, False])
def test_every_batch_says_which_samples_it_holds(prefetch: bool, workers: int) -> None:
    train_data = InfoBatch(numbered(70), 3, index_key="index")
    options = {**PLAIN, "num_workers": workers, "distributed": True, "pin_memory": False}
    loader = create_loader(train_data, SIZE, 16, True, use_prefetcher=prefetch, device=CPU, **options)
    assert len(loader) == 4  # timm drops the last, short batch
    for _ in range(2):
        batches = list(loader)
        assert len(batches) == 4
        for inputs, target in batches:
            torch.testing.assert_close(inputs, target.index.float()[:, None, None, None].expand(16, 1, 28, 28))
            assert torch.equal(target.label, target.index % CLASSES)
        assert torch.cat([target.index for _, target in batches]).tolist() == train_data.plan.indices[:64].tolist()


def test_timms_transforms_reach_the_data() -> None:
    train_data = InfoBatch(pictures(8), 3, index_key="index")
    loader = create_loader(
        train_data, (1, 20, 20), 4, hflip=1.0, scale=(0.5, 1.0), num_workers=0, mean=(0.5,), std=(0.5,), device=CPU
    )
    inputs, _ = next(iter(loader))
    assert inputs.shape == (4, 1, 20, 20)
    assert "RandomHorizontalFlip(p=1.0)" in repr(train_data.dataset.transform)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"is_training": False}, "validation loader from data of its own"),
        ({"num_aug_repeats": 3}, r"order=RepeatAugSampler\(dataset, num_replicas=1, rank=0, num_repeats=3\)"),
        ({"use_multi_epochs_loader": True}, "before their plan is made"),
        ({"num_aug_splits": 3}, "several views"),
        ({"input_size_choices": [20, 28]}, "input_size_choices"),
        ({"collate_fn": FastCollateMixup(mode="half")}, "'batch', 'pair' or 'elem'"),
    ],
)
def test_what_does_not_go_with_a_plan_is_refused(options: dict[str, Any], message: str) -> None:
    train_data = InfoBatch(numbered(8), 3, index_key="index")
    with pytest.raises(ValueError, match=message):
        create_loader(train_data, SIZE, 4, device=CPU, **PLAIN, **options)


def test_a_train_data_without_indices_is_refused() -> None:
    with pytest.raises(ValueError, match="index_key='index'"):
        create_loader(InfoBatch(numbered(8), 3), SIZE, 4, device=CPU)


@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize("how", [{}, {"is_training": False}, {"is_training": True}])
def test_other_data_gets_timms_own_loader(how: dict[str, Any], prefetch: bool) -> None:
    """Our name may shadow timm's in train.py, which makes its validation loader by it as well."""
    options = {**PLAIN, **how, "use_prefetcher": prefetch, "device": CPU}
    ours, theirs = (make(numbered(10), SIZE, 4, **options) for make in (create_loader, timm.data.create_loader))
    assert type(ours) is type(theirs)
    assert repr(ours.dataset.transform) == repr(theirs.dataset.transform)
    assert type(ours.sampler) is type(theirs.sampler)
    torch.manual_seed(0)
    batches = list(ours)
    torch.manual_seed(0)
    for (x, y), (their_x, their_y) in zip(batches, theirs, strict=True):
        assert torch.equal(x, their_x)
        assert torch.equal(y, their_y)
    with pytest.raises(TypeError, match="keep_steps=True is for an InfoBatch, got Pictures"):
        create_loader(numbered(8), SIZE, 4, device=CPU, keep_steps=True)


# -- mixing ----------------------------------------------------------------------------------------------------------

MIXES = {
    "mixup": {"mixup_alpha": 0.8},
    "cutmix": {"mixup_alpha": 0.0, "cutmix_alpha": 1.0},
    "both": {"cutmix_alpha": 1.0},
}


@pytest.mark.parametrize("mode", ["batch", "pair", "elem"])
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("prefetch", [True, False])
def test_inputs_and_targets_are_mixed_as_by_timm(prefetch: bool, mix: str, mode: str) -> None:
    options = {**MIXES[mix], "mode": mode, "label_smoothing": 0.1, "num_classes": CLASSES}
    data = pictures(32)
    train_data = InfoBatch(data, 3, index_key="index")
    collate = FastCollateMixup(**options) if prefetch else None
    with numpys_chance(3):
        loader = create_loader(train_data, SIZE, 8, collate_fn=collate, use_prefetcher=prefetch, device=CPU, **PLAIN)
        inputs, target = next(iter(loader))
        if not prefetch:
            plain = inputs.clone()
            inputs, target = indexed(Mixup(**options))(inputs, target)

    chosen = [data[i] for i in target.index.tolist()]
    with numpys_chance(3):
        if prefetch:
            their_inputs, their_target = FastCollateMixup(**options)(
                [(np.asarray(x * 255).astype(np.uint8) if x.is_floating_point() else x, y) for x, y in chosen]
            )
            their_inputs = their_inputs.float()
        else:
            their_inputs, their_target = Mixup(**options)(plain, torch.tensor([y for _, y in chosen]))
    torch.testing.assert_close(inputs, their_inputs)
    torch.testing.assert_close(target.mixed, their_target)
    assert target.label.tolist() == [y for _, y in chosen]
    assert target.share.shape == (8,)
    assert target.per_element == (mode == "elem")
    if mode != "elem":
        assert torch.equal(target.share, target.share.flip(0))
    if mode != "batch":
        assert len(target.share.unique()) > 1


@pytest.mark.parametrize("mode", ["batch", "pair", "elem"])
@pytest.mark.parametrize("prefetch", [True, False])
def test_in_a_batch_of_odd_size_the_middle_one_is_left_alone(prefetch: bool, mode: str) -> None:
    """timm takes even batches only; where steps stay a batch may be odd. The others are mixed as without it."""
    options = {"mode": mode, "num_classes": CLASSES, "cutmix_alpha": 1.0, "label_smoothing": 0.0}
    collate = FastCollateMixup(**options) if prefetch else None

    def mixed(indices: list[int]) -> tuple[torch.Tensor, Target]:
        train_data = InfoBatch(numbered(9), 3, index_key="index", order=indices)
        with numpys_chance(3):
            size = {"batch_size": len(indices), "use_prefetcher": prefetch, "keep_steps": True}
            [(inputs, target)] = create_loader(train_data, SIZE, collate_fn=collate, device=CPU, **PLAIN, **size)
            return (inputs, target) if prefetch else indexed(Mixup(**options))(inputs, target)

    odd, target = mixed([8, 1, 3, 5, 2, 7, 0])
    even, expected = mixed([8, 1, 3, 2, 7, 0])
    others = [0, 1, 2, 4, 5, 6]
    assert target.index.tolist() == [8, 1, 3, 5, 2, 7, 0]
    assert float(target.share[3]) == 1
    assert target.mixed[3].tolist() == nn.functional.one_hot(torch.tensor(5), CLASSES).tolist()
    assert odd[3].unique().tolist() == [5]
    torch.testing.assert_close(odd[others], even)
    torch.testing.assert_close(target.mixed[others], expected.mixed)
    torch.testing.assert_close(target.share[others], expected.share)
    assert not target.share[others].eq(1).all()


@pytest.mark.parametrize("prefetch", [True, False])
def test_mixing_can_be_switched_off_as_timms_loop_does(prefetch: bool) -> None:
    train_data = InfoBatch(numbered(16), 3, index_key="index")
    collate = FastCollateMixup(num_classes=CLASSES) if prefetch else None
    loader = create_loader(train_data, SIZE, 8, collate_fn=collate, use_prefetcher=prefetch, device=CPU, **PLAIN)
    mixup = indexed(Mixup(num_classes=CLASSES))
    if prefetch:
        assert loader.mixup_enabled
        loader.mixup_enabled = False
    else:
        mixup.mixup_enabled = False
    inputs, target = next(iter(loader))
    if not prefetch:
        inputs, target = mixup(inputs, target)
    assert target.share.eq(1).all()
    torch.testing.assert_close(inputs[:, 0, 0, 0], target.index.float())


def test_each_mixup_has_its_place() -> None:
    with pytest.raises(TypeError, match="collate_fn=mixup"):
        indexed(FastCollateMixup())
    with pytest.raises(ValueError, match="'half'"):
        indexed(Mixup(mode="half"))


# -- the loss --------------------------------------------------------------------------------------------------------


def batch(size: int = 8, mixed: bool = False, mode: str = "batch") -> tuple[torch.Tensor, Target]:
    """Outputs for samples 0, 1, … and what they should be."""
    output = torch.randn(size, CLASSES, generator=torch.Generator().manual_seed(2))
    target = Target(torch.arange(size) % 3, torch.arange(size))
    if mixed:
        with numpys_chance(1):
            _, target = indexed(Mixup(mode=mode, num_classes=CLASSES))(torch.zeros(size, 1, 2, 2), target)
    return output, target


CRITERIA = {
    "ce": (nn.CrossEntropyLoss(), True, True),
    "ce smoothed": (nn.CrossEntropyLoss(label_smoothing=0.2), True, True),
    "label smoothing": (LabelSmoothingCrossEntropy(0.1), True, False),
    "soft target": (SoftTargetCrossEntropy(), False, True),
    "bce": (BinaryCrossEntropy(0.1), True, True),
    "bce threshold": (BinaryCrossEntropy(0.1, target_threshold=0.2), True, True),
    "bce sum": (BinaryCrossEntropy(0.1, sum_classes=True, pos_weight=3.0), True, True),
    "bce weight": (BinaryCrossEntropy(0.0, weight=torch.arange(10.0)), True, True),
}


@pytest.mark.parametrize("name", CRITERIA)
def test_on_full_data_the_mean_is_the_criterions_own(name: str) -> None:
    criterion, hard, soft = CRITERIA[name]
    for mixed in [False] * hard + [True] * soft:
        output, target = batch(mixed=mixed)
        ours = Criterion(criterion, InfoBatch(numbered(8), 3, index_key="index"))
        given = target.mixed if mixed else target.label
        torch.testing.assert_close(ours(output, target), criterion(output, given))


def test_scores_are_losses_and_for_mixed_inputs_those_of_appendix_a3() -> None:
    train_data = InfoBatch(numbered(8), 3, index_key="index")
    output, target = batch()
    Criterion(nn.CrossEntropyLoss(), train_data)(output, target)
    each = nn.CrossEntropyLoss(reduction="none")(output, target.label)
    np.testing.assert_allclose(train_data.scores, each, rtol=1e-6)

    for criterion, probability in (
        (SoftTargetCrossEntropy(), output.softmax(-1)),
        (BinaryCrossEntropy(), output.sigmoid()),
    ):
        _, target = batch(mixed=True)
        Criterion(criterion, train_data)(output, target)
        error = (target.mixed - probability).abs()
        expected = [error[i, target.label[i]] + error[7 - i, target.label[i]] for i in range(8)]
        np.testing.assert_allclose(train_data.scores, expected, rtol=1e-6)

        _, target = batch(mixed=True, mode="elem")
        Criterion(criterion, train_data)(output, target)
        worst = (target.mixed - probability).abs().amax(1)
        expected = [(worst[i] + worst[7 - i]) / (target.share[i] + 1 - target.share[7 - i]) for i in range(8)]
        np.testing.assert_allclose(train_data.scores, expected, rtol=1e-5)


def test_a_criterion_of_ones_own_must_return_a_loss_per_sample() -> None:
    train_data = InfoBatch(numbered(8), 3, index_key="index")
    for mixed in (False, True):
        output, target = batch(mixed=mixed)
        own = Criterion(lambda output, target: output.logsumexp(-1), train_data)
        torch.testing.assert_close(own(output, target), output.logsumexp(-1).mean())
        with pytest.raises(ValueError, match="loss is a scalar"):
            Criterion(lambda output, target: output.mean(), train_data)(output, target)


def test_criteria_without_a_loss_per_sample_are_refused() -> None:
    train_data = InfoBatch(numbered(8), 3, index_key="index")
    with pytest.raises(TypeError, match="JsdCrossEntropy, which has no loss per sample"):
        Criterion(JsdCrossEntropy(), train_data)
    with pytest.raises(ValueError, match="ratio of two sums"):
        Criterion(nn.CrossEntropyLoss(weight=torch.ones(CLASSES)), train_data)
    for criterion in (nn.CrossEntropyLoss(reduction="sum"), BinaryCrossEntropy(reduction="sum")):
        with pytest.raises(ValueError, match="reduction='sum'"):
            Criterion(criterion, train_data)
    output, target = batch(mixed=True)
    with pytest.raises(ValueError, match="use SoftTargetCrossEntropy"):
        Criterion(LabelSmoothingCrossEntropy(), train_data)(output, target)
    with pytest.raises(TypeError, match=r"got Tensor: for validation"):
        Criterion(nn.CrossEntropyLoss(), train_data)(output, target.label)


# -- what a mixed input weighs ---------------------------------------------------------------------------------------


class Chosen(Method):
    """Keeps the samples it is told to, with the weights it is told."""

    info: ClassVar = MethodInfo(name="chosen", summary="as told", reference="tests", unbiased=False)

    def __init__(self, weights: np.ndarray) -> None:
        self.weights = weights

    def select(self, scores: np.ndarray, epoch: Epoch, rng: np.random.Generator) -> Weights:
        return Weights.dense(self.weights)

    def expected_saving(self, pruning: range, num_epochs: int) -> float:
        return 0.0

    def options(self) -> dict[str, object]:
        return {}


@dataclass(frozen=True)
class Draw:
    """Groups of samples, and how many of each an epoch keeps."""

    groups: tuple[tuple[int, ...], ...]
    keep: tuple[int, ...]

    @property
    def size(self) -> int:
        return sum(map(len, self.groups))

    def weights(self) -> Iterator[np.ndarray]:
        """The weights of every set that an epoch may keep, each equally likely."""
        for chosen in itertools.product(*map(itertools.combinations, self.groups, self.keep)):
            weights = np.zeros(self.size)
            for group, kept in zip(self.groups, chosen, strict=True):
                weights[list(kept)] = len(group) / len(kept)
            yield weights

    def plans(self) -> Iterator[tuple[np.ndarray, list[int]]]:
        """Every (weights, order) that an epoch may have, each equally likely."""
        for weights in self.weights():
            for order in itertools.permutations(np.flatnonzero(weights).tolist()):
                yield weights, list(order)


DRAWS = {
    "mean rule": Draw(((0, 1, 2, 3), (4, 5)), (2, 2)),
    "three weights": Draw(((0, 1, 2), (3, 4, 5, 6), (7, 8)), (2, 2, 2)),
    "one weight": Draw(((0, 1, 2, 3, 4),), (4,)),
}


@pytest.mark.parametrize("name", ["mean rule", "one weight"])
@pytest.mark.parametrize(
    ("criterion", "precision"),  # torch computes the binary loss in the target's, which timm makes in float32
    [(SoftTargetCrossEntropy(), 1e-12), (BinaryCrossEntropy(target_threshold=0.2), 1e-6)],
    ids=["ce", "bce"],
)
def test_the_expected_gradient_under_mixing_is_the_one_of_full_data(
    name: str, criterion: nn.Module, precision: float
) -> None:
    """By enumeration: every subset that may be kept in every order, mixed by timm, against all pairs of full data."""
    draw = DRAWS[name]
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(draw.size, 1, 2, 2, generator=generator, dtype=torch.float64)
    y = torch.arange(draw.size) % 3
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).double()
    mixup = indexed(Mixup(mixup_alpha=0.8, mode="batch", num_classes=3))  # one λ, the same in every case by its seed

    def gradient(order: list[int], loss_of: Callable[[torch.Tensor, Target], torch.Tensor]) -> torch.Tensor:
        index = torch.tensor(order)
        with numpys_chance(11):
            inputs, target = mixup(x[index].clone(), Target(y[index], index))
        loss = loss_of(model(inputs), target)
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])

    def pruned(weights: np.ndarray, order: list[int], by_pair: bool) -> torch.Tensor:
        left_out = np.flatnonzero(weights == 0).tolist()
        train_data = InfoBatch(
            numbered(draw.size), 4, method=Chosen(weights), index_key="index", order=order + left_out
        )
        train_data.set_epoch(1)
        assert train_data.plan.indices.tolist() == order
        ours = Criterion(criterion, train_data)

        def first_samples_weight(output: torch.Tensor, target: Target) -> torch.Tensor:
            return train_data.update(per_sample(output, target.mixed), target.index)

        return gradient(order, ours if by_pair else first_samples_weight) * len(order)  # a sum over inputs

    def per_sample(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.stack([criterion(o, t) for o, t in zip(output.split(1), target.split(1), strict=True)])

    def input_of_pair(output: torch.Tensor, target: Target) -> torch.Tensor:
        return criterion(output[:1], target.mixed[:1])

    pairs = list(itertools.permutations(range(draw.size), 2))
    full = torch.stack([gradient(list(pair), input_of_pair) for pair in pairs]).mean(0) * draw.size
    mean = torch.stack([pruned(*plan, by_pair=True) for plan in draw.plans()]).mean(0)
    torch.testing.assert_close(mean, full, rtol=precision, atol=precision)

    if name == "mean rule":  # a mixed input that weighs what its first sample does is biased, and this test can see it
        naive = torch.stack([pruned(*plan, by_pair=False) for plan in draw.plans()]).mean(0)
        assert (naive - full).abs().max() > 0.01 * full.abs().max()


@pytest.mark.parametrize("name", DRAWS)
def test_every_ordered_pair_counts_as_often_as_with_full_data(name: str) -> None:
    """E[Σ weight of (i, j)] = 1 / (N - 1): whatever is computed of a pair, its sum over an epoch is unbiased."""
    draw = DRAWS[name]
    counted = np.zeros((draw.size, draw.size))
    cases = list(draw.weights())
    for weights in cases:
        train_data = InfoBatch(numbered(draw.size), 4, method=Chosen(weights))
        train_data.set_epoch(1)
        kept = torch.from_numpy(np.flatnonzero(weights))
        index, partner = torch.cartesian_prod(kept, kept).T
        index, partner = index[index != partner], partner[index != partner]
        relative = PairWeights(train_data.plan, CPU, torch.float64).relative(index, partner)
        counted[index, partner] += weights[index] * relative.numpy() / (len(kept) - 1)  # so often are they partners
    expected = (1 - np.eye(draw.size)) / (draw.size - 1)
    np.testing.assert_allclose(counted / len(cases), expected, rtol=1e-12)


def test_where_all_weigh_the_same_a_pair_weighs_that_too() -> None:
    train_data = InfoBatch(numbered(100), 4, method="random", index_key="index")  # without rescaling: 1 each
    train_data.set_epoch(1)
    index = torch.from_numpy(train_data.plan.indices[:10].astype(np.int64))
    relative = PairWeights(train_data.plan, CPU).relative(index, index.flip(0))
    assert len(train_data.plan) == 50
    torch.testing.assert_close(relative, torch.ones(10))


@pytest.fixture
def pruned() -> InfoBatch:
    """An epoch that keeps samples 0 and 2 with weight 2, and 4 and 5 with weight 1."""
    train_data = InfoBatch(numbered(6), 4, method=Chosen(np.array([2.0, 0, 2, 0, 1, 1])), index_key="index")
    train_data.set_epoch(1)
    return train_data


def mixed_batch(enabled: bool = True) -> tuple[torch.Tensor, Target]:
    index = torch.tensor([0, 4, 5, 2])
    mixup = indexed(Mixup(mode="elem", num_classes=3))
    mixup.mixup_enabled = enabled
    with numpys_chance(0):
        _, target = mixup(torch.zeros(4, 1, 2, 2), Target(index % 3, index))
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), target


def test_inputs_that_were_not_mixed_weigh_what_their_sample_does(pruned: InfoBatch) -> None:
    output, target = mixed_batch(enabled=False)
    each = nn.CrossEntropyLoss(reduction="none")(output, target.mixed)
    loss = Criterion(SoftTargetCrossEntropy(), pruned)(output, target)
    torch.testing.assert_close(loss, (each * torch.tensor([2.0, 1, 1, 2])).mean())


def test_a_mean_is_not_taken_for_losses_by_way_of_the_weights(pruned: InfoBatch) -> None:
    with pytest.raises(ValueError, match="loss is a scalar"):
        Criterion(lambda output, target: output.mean(), pruned)(*mixed_batch())


# -- timm's training flow --------------------------------------------------------------------------------------------

EPOCHS = 4


@dataclass
class Case:
    """One training run as timm's ``train.py`` makes it, and what was seen of it."""

    method: str = "infobatch"
    size: int = 150
    prefetch: bool = True
    mix: str | None = None  # a mode of Mixup
    accumulate: int = 1
    amp: bool = False
    stay: bool = False  # whether steps stay
    folder: Path | None = None
    save_at: tuple[int, int] | None = None  # after this (epoch, update): save and stop
    seen: dict[int, list[int]] = field(default_factory=dict)
    lengths: dict[int, int] = field(default_factory=dict)  # of the loader, as a progress bar would show it
    last_loss: dict[int, float] = field(default_factory=dict)
    lrs: dict[int, list[float]] = field(default_factory=dict)
    validated: list[int] = field(default_factory=list)

    def train(self, resume: Path | None = None) -> Case:
        torch.manual_seed(0)
        self.train_data = train_data = InfoBatch(pictures(self.size), EPOCHS, method=self.method, index_key="index")
        mixup = {"mode": self.mix, "cutmix_alpha": 1.0, "num_classes": CLASSES} if self.mix else None
        self.model = model = timm.create_model("test_vit", num_classes=CLASSES, in_chans=1, img_size=32)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        common = {"input_size": (1, 32, 32), "batch_size": 8, "device": CPU, **PLAIN, "std": (1.0,)}
        collate = FastCollateMixup(**mixup) if mixup and self.prefetch else None
        how = {"use_prefetcher": self.prefetch, "keep_steps": self.stay}
        loader = create_loader(train_data, collate_fn=collate, **how, **common)
        mixup_fn = indexed(Mixup(**mixup)) if mixup and not self.prefetch else None
        evaluation = timm.data.create_loader(pictures(16), **common)
        criterion = Criterion(SoftTargetCrossEntropy() if mixup else LabelSmoothingCrossEntropy(), train_data)
        scheduler, num_epochs = create_scheduler(
            train_data, loader, optimizer, grad_accum_steps=self.accumulate, **SCHEDULE
        )
        scaler = CheckpointState(train_data, NativeScaler("cpu") if self.amp else None)
        if resume:
            resume_checkpoint(model, resume, optimizer, scaler, log_info=False)
            scheduler.step_update(0)
        saver = CheckpointSaver(
            model, optimizer, amp_scaler=scaler, checkpoint_dir=self.folder, recovery_dir=self.folder
        )
        for epoch in range(train_data.epoch, num_epochs):
            train_data.set_epoch(epoch)
            self.lengths[epoch] = len(loader)
            self.seen[epoch], self.lrs[epoch] = [], []
            model.train()
            accum_steps, last = self.accumulate, len(loader) - 1
            for batch_idx, (inputs, target) in enumerate(loader):
                need_update = batch_idx == last or (batch_idx + 1) % self.accumulate == 0
                if batch_idx >= len(loader) - len(loader) % self.accumulate:
                    accum_steps = len(loader) % self.accumulate
                if mixup_fn is not None:
                    with numpys_chance(1000 * epoch + train_data.batches_done):
                        inputs, target = mixup_fn(inputs, target)
                output = model(inputs)
                loss = criterion(output, target)
                loss /= accum_steps
                scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters(), need_update=need_update)
                self._note(epoch, output, target)
                if not need_update:
                    continue
                optimizer.zero_grad()
                scheduler.step_update(num_updates=len(self.lrs[epoch]))  # a number that means nothing
                self.lrs[epoch].append(optimizer.param_groups[0]["lr"])
                if (epoch, len(self.lrs[epoch])) == self.save_at:
                    saver.save_recovery(epoch, batch_idx)
                    return self
            model.eval()
            assert sum(len(x) for x, _ in evaluation) == 16
            self.validated.append(epoch)
            scheduler.step(epoch + 1, 0.5)
            if self.save_at == (epoch, -1):
                saver.save_checkpoint(epoch, metric=0.5)
                return self
        return self

    def _note(self, epoch: int, output: torch.Tensor, target: Target) -> None:
        self.seen[epoch] += target.index.tolist()
        each = nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1)(output.detach(), target.label)
        self.last_loss.update(zip(target.index.tolist(), each.tolist(), strict=True))


SCHEDULE = {"sched": "cosine", "num_epochs": EPOCHS, "warmup_epochs": 1, "step_on_epochs": False}


def rates_of_timm(updates: int) -> list[list[float]]:
    """The learning rates after each update of timm's own schedule, by epoch."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1e-3)
    theirs, _ = create_scheduler_v2(optimizer, updates_per_epoch=updates, **SCHEDULE)
    rates: list[list[float]] = [[] for _ in range(EPOCHS)]
    for update in range(EPOCHS * updates):
        theirs.step_update(update + 1)
        rates[update // updates].append(optimizer.param_groups[0]["lr"])
    return rates


@pytest.mark.parametrize("accumulate", [1, 3])
def test_full_and_pruned_training(accumulate: int) -> None:
    full = Case(method="full", accumulate=accumulate).train()
    pruned = Case(accumulate=accumulate).train()

    batches = 150 // 8
    assert list(full.lengths.values()) == [batches] * EPOCHS
    assert pruned.lengths[0] == batches
    assert all(pruned.lengths[epoch] < batches for epoch in (1, 2))
    for case in (full, pruned):
        assert case.validated == list(range(EPOCHS))
        for epoch, seen in case.seen.items():
            assert len(seen) == len(set(seen)) == 8 * case.lengths[epoch]
            assert len(case.lrs[epoch]) == math.ceil(case.lengths[epoch] / accumulate)
        known = np.array([case.last_loss.get(i, np.nan) for i in range(150)])
        np.testing.assert_allclose(case.train_data.scores, known, rtol=1e-5)
    assert pruned.seen[EPOCHS - 1] == pruned.train_data.plan.indices[: len(pruned.seen[EPOCHS - 1])].tolist()
    assert pruned.train_data.stats.saving > 0.1

    # The learning rate is timm's own with full data; with pruned data each epoch goes through the same rates in fewer
    # updates and ends where full data does.
    for epoch, rates in enumerate(rates_of_timm(math.ceil(batches / accumulate))):
        assert full.lrs[epoch] == rates
        assert set(pruned.lrs[epoch]) <= set(rates)
        assert pruned.lrs[epoch][-1] == rates[-1]
        assert [rate for rate in rates if rate in pruned.lrs[epoch]] == list(dict.fromkeys(pruned.lrs[epoch]))


def test_pruned_training_where_steps_stay() -> None:
    """timm's own schedule, update by update, and each loss at its sample."""
    pruned = Case(accumulate=4, stay=True).train()
    batches = 150 // 8
    assert list(pruned.lengths.values()) == [batches] * EPOCHS
    for seen, of_epoch in zip(pruned.seen.values(), pruned.train_data.stats.epochs, strict=True):
        assert len(seen) == len(set(seen)) == of_epoch.seen == min(of_epoch.kept, 8 * batches)
    assert pruned.train_data.stats.saving > 0.1
    known = np.array([pruned.last_loss.get(i, np.nan) for i in range(150)])
    np.testing.assert_allclose(pruned.train_data.scores, known, rtol=1e-5)

    assert list(pruned.lrs.values()) == rates_of_timm(math.ceil(batches / 4))


@pytest.mark.parametrize(
    ("options", "save_at"),
    [
        ({"prefetch": False, "mix": "elem", "accumulate": 4, "stay": True}, (2, 3)),
        ({"prefetch": True, "amp": True, "accumulate": 2}, (1, 3)),
        ({"prefetch": False, "mix": "elem"}, (2, 4)),
        ({"prefetch": False, "mix": "batch"}, (1, -1)),
    ],
    ids=["steps stay", "accumulated", "mixed", "epoch's end"],
)
def test_going_on_from_timms_own_checkpoint(options: dict[str, Any], save_at: tuple[int, int], tmp_path: Path) -> None:
    whole = Case(**options).train()
    stopped = Case(**options, folder=tmp_path, save_at=save_at).train()
    [path] = [*tmp_path.glob("recovery-*"), *tmp_path.glob("checkpoint-*")]
    resumed = Case(**options).train(resume=path)

    epoch, update = save_at
    assert min(resumed.seen) == (epoch if update > 0 else epoch + 1)
    for e in range(EPOCHS):
        assert stopped.seen.get(e, []) + resumed.seen.get(e, []) == whole.seen[e]
        assert stopped.lrs.get(e, []) + resumed.lrs.get(e, []) == whole.lrs[e]
    assert min(resumed.lengths.values()) > 0
    np.testing.assert_array_equal(resumed.train_data.scores, whole.train_data.scores)
    ours, theirs = resumed.model.state_dict(), whole.model.state_dict()
    assert [name for name in theirs if not torch.equal(ours[name], theirs[name])] == []


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_going_on_with_timms_random_transforms(workers: int) -> None:
    """Crops, flips and mixing in the loader, drawn from global generators: in mid-epoch, with other workers."""

    def batches(train_data: InfoBatch, workers: int) -> Iterator[torch.Tensor]:
        mixup = FastCollateMixup(mixup_alpha=1.0, cutmix_alpha=1.0, num_classes=CLASSES)
        options = {"num_workers": workers, "mean": (0.5,), "std": (0.5,), "device": CPU, "pin_memory": False}
        loader = create_loader(train_data, (1, 20, 20), 8, hflip=0.5, scale=(0.3, 1.0), collate_fn=mixup, **options)
        for epoch in range(train_data.epoch, 3):
            train_data.set_epoch(epoch)
            for inputs, target in loader:
                train_data.update(inputs.mean((1, 2, 3)), target.index)
                yield torch.cat([inputs.flatten(1), target.mixed], 1)

    def make() -> InfoBatch:
        return InfoBatch(pictures(40), 3, index_key="index", seed=1, seed_samples=True)

    whole = list(batches(make(), workers))
    stopped = make()
    before = list(itertools.islice(batches(stopped, workers), 7))
    state = CheckpointState(stopped).state_dict()
    resumed = make()
    CheckpointState(resumed).load_state_dict(state)
    after = list(batches(resumed, 2 - workers))
    assert len(whole) == len(before) + len(after)
    assert all(torch.equal(a, b) for a, b in zip(whole, [*before, *after], strict=True))


@pytest.mark.parametrize(("mode", "stay"), [("batch", False), ("pair", False), ("elem", False), ("pair", True)])
def test_training_with_mixing_in_the_loader(mode: str, stay: bool) -> None:
    with numpys_chance(0):
        case = Case(mix=mode, size=60, stay=stay).train()
    scores = case.train_data.scores
    assert sum(np.isnan(scores)) <= 60 % 8
    assert np.nanmin(scores) > 0
    assert np.nanmax(scores) <= (2 if mode != "elem" else 2 / 0.1)
    assert case.train_data.stats.saving > 0.1


def test_the_state_is_the_one_of_the_moment_it_is_asked_for() -> None:
    train_data = InfoBatch(numbered(4), 3, index_key="index")
    state = CheckpointState(train_data)
    for score in (1.0, 2.0):  # an epoch that is started anew comes to the same place
        train_data.set_epoch(0)
        train_data.update(torch.full((4,), score), torch.arange(4))
        assert state.state_dict()["train_data"]["scores"].tolist() == [score] * 4


def test_a_task_of_timms_takes_the_criterion() -> None:
    train_data = InfoBatch(numbered(8), 3, index_key="index")
    output, target = batch()
    made = ClassificationTask(nn.Identity(), Criterion(nn.CrossEntropyLoss(), train_data), verbose=False)
    loss = made(output, target.to(CPU))["loss"]
    torch.testing.assert_close(loss, nn.CrossEntropyLoss()(output, target.label))
    assert not made.state_dict()


def test_the_scheduler_counts_updates_itself() -> None:
    train_data = InfoBatch(numbered(70), 3, index_key="index")
    loader = create_loader(train_data, SIZE, 16, device=CPU, **PLAIN)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    with pytest.raises(TypeError, match="updates_per_epoch is counted here"):
        create_scheduler(train_data, loader, optimizer, updates_per_epoch=4)
    scheduler, epochs = create_scheduler(train_data, loader, optimizer, sched="step", num_epochs=3, decay_epochs=1)
    assert (scheduler.updates_per_epoch, epochs, scheduler.decay_rate) == (4, 3, 0.1)
    with pytest.raises(ValueError, match=r"makes 5 epochs, .* but train_data was made for 3: .*InfoBatch\(dataset, 5"):
        create_scheduler(train_data, loader, optimizer, sched="cosine", num_epochs=3, cooldown_epochs=2)
    scheduler.step(1)  # by epochs: timm's own
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)


def test_the_summary_counts_the_epochs_in_which_timm_cools_down() -> None:
    train_data = InfoBatch(numbered(32), 3 + 2, index_key="index")
    loader = create_loader(train_data, SIZE, 16, device=CPU, **PLAIN)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    _, num_epochs = create_scheduler(train_data, loader, optimizer, sched="cosine", num_epochs=3, cooldown_epochs=2)
    for epoch in range(num_epochs):
        train_data.set_epoch(epoch)
        for _, target in loader:
            train_data.update(target.index.float(), target.index)
    assert [epoch.epoch for epoch in train_data.stats.epochs] == [0, 1, 2, 3, 4]
    assert [epoch.kept < 32 for epoch in train_data.stats.epochs] == [False, True, True, True, False]
    assert "(5 epochs of 32 samples)" in train_data.summary()


@pytest.mark.parametrize("seed", [1, 2])
def test_the_plans_seed_is_timms(seed: int) -> None:
    def plan(timms: int, **options: Any) -> list[int]:
        random_seed(timms)
        train_data = InfoBatch(numbered(32), 3, index_key="index", **options)
        create_loader(train_data, SIZE, 16, device=CPU, **PLAIN)
        assert train_data.sampler.seed == options.get("seed", timms)
        return train_data.plan.indices.tolist()

    assert plan(seed) == plan(seed) == plan(7, seed=seed) == InfoBatch(numbered(32), 3, seed=seed).plan.indices.tolist()
    assert plan(seed) != plan(3)


# -- repeated augmentation -------------------------------------------------------------------------------------------


def test_repeated_augmentation_is_an_order() -> None:
    """Ranks see what timm's own sampler gives them; a sample that is left out is left out as often as it occurs."""
    data = numbered(64)
    repeats = RepeatAugSampler(data, num_replicas=1, rank=0, num_repeats=3, selected_round=0)
    train_data = InfoBatch(data, 3, index_key="index", order=repeats)
    loader = create_loader(train_data, SIZE, 8, device=CPU, **PLAIN)
    criterion = Criterion(lambda output, target: output, train_data)
    theirs = [RepeatAugSampler(data, 2, rank, num_repeats=3, selected_round=0) for rank in range(2)]
    assert train_data.plan.indices[0::2].tolist() == list(theirs[0])
    assert train_data.plan.indices[1::2].tolist() == list(theirs[1])

    seen = {}
    for epoch in range(2):
        train_data.set_epoch(epoch)  # which tells the order
        seen[epoch] = []
        for _, target in loader:
            seen[epoch] += target.index.tolist()
            criterion(target.index.float(), target)
    scored = set(seen[0])
    assert len(seen[0]) == 64
    assert 20 <= len(scored) <= 22  # three times each
    kept = set(train_data.plan.by_sample.kept().tolist())
    assert train_data.plan.indices.tolist() == [i for i in repeats if i in kept]
    assert len(train_data.plan) < 64
    assert set(np.flatnonzero(~np.isnan(train_data.scores))) == scored | set(seen[1])


# -- many processes, and the example ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_ranks(tmp_path: Path) -> None:
    done = torchrun(Path(__file__).with_name("timm_ranks.py"), tmp_path)
    assert done.stdout.count("as it should be") == 2


@pytest.mark.slow
def test_the_example(tmp_path: Path) -> None:
    example = ROOT / "examples" / "timm_train.py"
    arguments = ["--epochs", 3, "--samples", 300, "--batch-size", 32, "--output", tmp_path]
    done = python(example, *arguments, "--no-prefetcher", "--mixup-mode", "elem", "--grad-accum-steps", 2)
    assert "saved" in done.stdout
    assert done.stdout.count("test accuracy") == 3
    assert "lr 0.00e+00" in done.stdout
