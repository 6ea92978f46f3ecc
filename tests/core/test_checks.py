"""Bad input gets a clear error (argument, rule, value, remedy) and loses nothing."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from infobatch import InfoBatch, methods
from infobatch.core.checks import checked_ratio, is_real
from infobatch.samples import with_index

N = 12
BATCH = 4


def numbers() -> TensorDataset:
    return TensorDataset(torch.arange(float(N)))


def said(error: pytest.ExceptionInfo[BaseException], *parts: str) -> None:
    """All parts stand in the message, on one line."""
    text = str(error.value)
    assert "\n" not in text
    for part in parts:
        assert part in text, f"{part!r} is missing in: {text}"


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return iter(range(N))


class SizedStream(Stream):
    def __len__(self) -> int:
        return N


class Unsized(Dataset):
    def __getitem__(self, index: int) -> int:
        return index


# -- arguments ------------------------------------------------------------------------------------------------------

RATIO = ("ratio must lie in [0, 1)", "share of low-score samples to prune", "the paper uses 0.5; 0 prunes nothing")
DELTA = ("delta must lie in [0, 1]", "share of epochs with pruning", "the paper uses 0.875")
EPOCHS = ("num_epochs must be at least 1", "the number of epochs you will train")
SAVING = ("saving must lie in (0, 1)", "share of full training", "use saving=0.4 for 40 %")


WRONG: list[tuple[dict[str, Any], Any, tuple[str, ...]]] = [
    ({"num_epochs": 0}, ValueError, (*EPOCHS, "got 0")),
    ({"num_epochs": -3}, ValueError, (*EPOCHS, "got -3")),
    ({"num_epochs": 2.0}, TypeError, ("num_epochs must be a whole number", "got 2.0")),
    ({"num_epochs": True}, TypeError, ("num_epochs must be a whole number", "got True")),
    ({"num_epochs": "3"}, TypeError, ("num_epochs must be a whole number", "got '3'")),
    ({"ratio": -0.1}, ValueError, (*RATIO, "got -0.1")),
    ({"ratio": float("nan")}, ValueError, (*RATIO, "got nan")),
    ({"ratio": 1}, ValueError, (*RATIO, "got 1")),
    ({"ratio": 1.5}, ValueError, (*RATIO, "got 1.5")),
    ({"ratio": "0.5"}, ValueError, (*RATIO, "got '0.5'")),
    ({"delta": -0.1}, ValueError, (*DELTA, "got -0.1")),
    ({"delta": 1.1}, ValueError, (*DELTA, "got 1.1")),
    ({"delta": float("nan")}, ValueError, (*DELTA, "got nan")),
    ({"delta": "0.5"}, ValueError, (*DELTA, "got '0.5'")),
    ({"seed": -1}, ValueError, ("seed must be at least 0", "any number from 0 on", "got -1")),
    ({"seed": 0.5}, TypeError, ("seed must be a whole number", "got 0.5")),
    ({"warmup": -1}, ValueError, ("warmup must be at least 0", "without pruning", "got -1")),
    ({"warmup": 1.5}, TypeError, ("warmup must be a whole number", "got 1.5")),
    ({"momentum": 0}, ValueError, ("momentum must be above 0", "1 keeps the last loss")),
    ({"momentum": 1.2}, ValueError, ("momentum must lie in [0, 1]", "1 keeps the last loss", "got 1.2")),
    ({"index_key": 3}, TypeError, ("index_key must be a string", "got 3")),
    ({"saving": 0.4, "ratio": 0.3}, ValueError, ("pass ratio or saving, not both", "ratio=0.3", "saving=0.4")),
    ({"saving": 0}, ValueError, (*SAVING, "got 0")),
    ({"saving": 40}, ValueError, (*SAVING, "got 40")),
    ({"saving": float("nan")}, ValueError, (*SAVING, "got nan")),
    ({"saving": "0.4"}, (TypeError, ValueError), (*SAVING, "got '0.4'")),
    (
        {"saving": 0.7},
        ValueError,
        (
            "saving=0.7 cannot be reached",
            "6 of 10 epochs are pruned",
            "saves 0.450",
            "Ask for less, raise delta, or train more epochs",
        ),
    ),
    (
        {"strata": [0, 1]},
        ValueError,
        ("strata must hold one label per sample", "got 2 for a dataset of 12"),
    ),
    ({"strata": np.zeros((N, 2))}, ValueError, ("strata must be one label per sample", "(12, 2)")),
    ({"method": "infobtch"}, ValueError, ("there is no 'infobtch'", "did you mean 'infobatch'?", "random")),
    ({"method": 3}, TypeError, ("method must be a name", "or a methods.Method object", "got 3")),
    ({"rati": 0.3}, TypeError, ("method 'infobatch' has no option 'rati'", "did you mean 'ratio'?")),
    ({"condition": "equal"}, ValueError, ('condition must be "below" or "above"', "got 'equal'")),
    (
        {"method": "infobatch-quantile", "levels": [(0.5, 0)]},
        ValueError,
        ("levels must be pairs (quantile, share to keep)", "got ((0.5, 0.0),)", "((0.2, 0.25), (0.85, 0.5))"),
    ),
    ({"order": [0, N]}, IndexError, ("order yields an index outside 0..11", "of the wrapped dataset")),
    ({"order": [0, -1]}, IndexError, ("order yields an index outside 0..11", "of the wrapped dataset")),
    ({"order": [0.0, 1.5]}, TypeError, ("order", "whole numbers")),
]


@pytest.mark.parametrize(("arguments", "kind", "parts"), WRONG, ids=[str(case[0]) for case in WRONG])
def test_wrong_arguments(
    arguments: dict[str, Any], kind: type[Exception] | tuple[type[Exception], ...], parts: tuple[str, ...]
) -> None:
    with pytest.raises(kind) as error:
        InfoBatch(numbers(), **{"num_epochs": 10, "delta": 0.7, **arguments})
    said(error, *parts)


def test_an_order_that_can_be_gone_through_only_once() -> None:
    with pytest.raises(TypeError) as error:
        InfoBatch(numbers(), 3, order=iter(range(N)))
    said(error, "order", "more than once")


@pytest.mark.parametrize(
    "arguments",
    [
        {"ratio": np.float32(0.25), "delta": np.float32(0.5), "momentum": np.float64(0.5)},
        {"num_epochs": np.int64(4), "warmup": np.int32(1), "seed": np.uint8(7)},
        {"ratio": 0, "delta": 0},
        {"ratio": 0, "delta": 1},
    ],
    ids=str,
)
def test_right_arguments_of_any_kind_of_number(arguments: dict[str, Any]) -> None:
    train_data = InfoBatch(numbers(), **{"num_epochs": 10, **arguments})
    assert len(train_data.plan) == N


def test_options_beside_a_method_object() -> None:
    method = methods.create("infobatch", ratio=0.3)
    with pytest.raises(TypeError) as error:
        InfoBatch(numbers(), 3, 0.2, method=method, saving=None, rescale=False)
    said(error, "method", "already has its options", "['ratio', 'rescale']")


@pytest.mark.parametrize(
    "dataset",
    [
        pytest.param(Stream(), id="iterable"),
        pytest.param(SizedStream(), id="sized iterable"),
        pytest.param(Unsized(), id="no length"),
        pytest.param(iter([1]), id="iterator"),
        pytest.param(datasets.Dataset.from_dict({"x": [1]}).to_iterable_dataset(), id="Hugging Face"),
    ],
)
def test_a_stream_is_told_what_to_use_instead(dataset: Any) -> None:
    with pytest.raises(TypeError) as error:
        InfoBatch(dataset, 3)
    said(
        error,
        "dataset must be map-style, with __len__ and __getitem__",
        f"got {type(dataset).__name__}",
        "Use a map-style torch.utils.data.Dataset",
        "datasets.Dataset, not an IterableDataset",
    )


def test_an_empty_dataset() -> None:
    with pytest.raises(ValueError, match="dataset is empty: it must hold at least one sample"):
        InfoBatch([], 3)


def test_data_wrapped_twice() -> None:
    with pytest.raises(TypeError, match="dataset is already an InfoBatch: wrap the data only once"):
        InfoBatch(InfoBatch(numbers(), 3), 3)


@pytest.mark.parametrize("epoch", [-1, 0.5, True, None])
def test_a_wrong_epoch(epoch: Any) -> None:
    train_data = InfoBatch(numbers(), 3)
    for set_epoch in (train_data.set_epoch, train_data.sampler.set_epoch):
        with pytest.raises((TypeError, ValueError)) as error:
            set_epoch(epoch)
        said(error, "epoch must be", "epochs are counted from 0", f"got {epoch}")
    assert train_data.epoch == 0


# -- update ---------------------------------------------------------------------------------------------------------

INDEX = torch.arange(BATCH)
LOSS = torch.ones(BATCH)

BAD_UPDATES = {
    "scalar": ((torch.tensor(1.0),), {}, ValueError, ("loss is a scalar", "one value per sample", 'reduction="none"')),
    "two-dimensional": (
        (torch.ones(BATCH, 3),),
        {},
        ValueError,
        ("loss must have one value per sample", "got shape (4, 3)", "loss.flatten(1).mean(1)"),
    ),
    "whole numbers": ((torch.ones(BATCH, dtype=torch.int64),), {}, TypeError, ("loss must be", "got torch.int64")),
    "complex": ((torch.ones(BATCH, dtype=torch.complex64),), {}, TypeError, ("loss must be", "got torch.complex64")),
    "list": (([1.0] * BATCH,), {}, TypeError, ("loss must be a floating-point tensor", "got list")),
    "array": ((np.ones(BATCH),), {}, TypeError, ("loss must be a floating-point tensor", "got ndarray")),
    "too long": ((torch.ones(BATCH + 1),), {}, ValueError, ("loss must hold", "got 5", "batch has 4 samples")),
    "too short": ((torch.ones(BATCH - 1),), {}, ValueError, ("loss must hold", "got 3", "batch has 4 samples")),
    "empty": ((torch.ones(0),), {}, ValueError, ("loss must hold", "got 0", "batch has 4 samples")),
    "scalar score": ((LOSS,), {"score": torch.tensor(1.0)}, ValueError, ("score is a scalar",)),
    "long score": (
        (LOSS,),
        {"score": torch.ones(9)},
        ValueError,
        ("score has 9 values for 4 losses", "one per sample"),
    ),
    "flat score": ((LOSS,), {"score": INDEX}, TypeError, ("score must be a floating-point tensor", "torch.int64")),
    "float index": (
        (LOSS, INDEX.float()),
        {},
        TypeError,
        ("index must hold whole numbers", "got torch.float32", "keep it an integer tensor"),
    ),
    "mask as index": ((LOSS, INDEX > 1), {}, TypeError, ("index must hold whole numbers", "got torch.bool")),
    "short index": ((LOSS, INDEX[:2]), {}, ValueError, ("index must name one sample per loss", "(2,) for 4 losses")),
    "column index": ((LOSS, INDEX[:, None]), {}, ValueError, ("index must name one sample per loss", "(4, 1)")),
    "index too large": ((LOSS, INDEX + N - 3), {}, IndexError, ("index 12 is outside", "12 samples (0..11)")),
    "negative index": ((LOSS, INDEX - 1), {}, IndexError, ("index -1 is outside", "12 samples (0..11)")),
    "empty index": ((torch.ones(0), INDEX[:0]), {}, ValueError, ("loss", "at least one")),
}


@pytest.mark.parametrize("case", BAD_UPDATES)
def test_a_bad_update_says_why_and_loses_nothing(case: str) -> None:
    arguments, named, kind, parts = BAD_UPDATES[case]
    train_data = InfoBatch(numbers(), 3)
    loader = DataLoader(train_data, batch_size=BATCH, sampler=train_data.sampler)
    for number, (x,) in enumerate(loader):
        before = train_data.scores.copy()
        with pytest.raises(kind) as error:
            train_data.update(*arguments, **named)
        said(error, *parts)
        np.testing.assert_array_equal(train_data.scores, before)
        assert train_data.position == (number * BATCH, N)
        train_data.update(x)  # the right one still counts
    np.testing.assert_array_equal(train_data.scores, np.arange(N))
    assert train_data.stats.seen == N


# -- index_key ------------------------------------------------------------------------------------------------------


def test_a_key_that_is_taken() -> None:
    sample = {"x": 1, "label": 2}
    with pytest.raises(ValueError) as error:
        with_index(sample, 3, "label")
    said(error, "index_key='label' is already a key of the samples", "choose another name")
    assert sample == {"x": 1, "label": 2}


def test_a_named_tuple_cannot_carry_an_index() -> None:
    train_data = InfoBatch([namedtuple("Pair", "x y")(1, 2)], 3, index_key="index")
    for fetch in (lambda: train_data[0], lambda: train_data.__getitems__([0])):
        with pytest.raises(TypeError) as error:
            fetch()
        said(
            error, "index_key='index'", "the named tuple Pair", "return a dict or a plain tuple", "leave index_key out"
        )


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ({"x": 1}, {"x": 1, "index": 7}),
        ((1, 2), (1, 2, 7)),
        ([1, 2], [1, 2, 7]),
        (5, (5, 7)),
        ("text", ("text", 7)),
        (None, (None, 7)),
    ],
    ids=str,
)
def test_where_a_sample_carries_its_index(sample: Any, expected: Any) -> None:
    before = repr(sample)
    found = with_index(sample, 7, "index")
    assert found == expected
    assert type(found) is type(expected)
    assert repr(sample) == before


# -- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, 0.5, np.float32(0.5), np.float64(1), np.int64(3), float("nan")])
def test_numbers_of_python_and_numpy(value):
    assert is_real(value)


@pytest.mark.parametrize("value", [True, np.True_, "0.5", None, [0.5], 1j])
def test_what_is_not_a_real_number(value):
    assert not is_real(value)


@pytest.mark.parametrize("ratio", [0, 0.0, 0.5, 0.999])
def test_shares_are_taken_as_floats(ratio):
    assert checked_ratio(ratio) == ratio
    assert isinstance(checked_ratio(ratio), float)


@pytest.mark.parametrize("ratio", [-0.1, -1, 1, 1.0, 3, math.nan, math.inf, True, "0.5", None])
def test_ratios_that_are_no_share_are_refused_and_named(ratio):
    """Defect 9 of the official code: ratios of -1 or 3 are clamped in silence."""
    with pytest.raises(ValueError, match=r"ratio must lie in \[0, 1\)") as error:
        checked_ratio(ratio)
    assert repr(ratio) in str(error.value)
    assert "the paper uses 0.5" in str(error.value)


# -- flags, labels and indices ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rescale", "anneal"])
@pytest.mark.parametrize("value", ["False", 0, 1.0, "no"])
def test_flags_are_true_false_or_none(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=rf"{name} must be True, False or None .* got {value!r}"):
        InfoBatch(range(N), 4, **{name: value})
    InfoBatch(range(N), 4, **{name: np.False_})


def test_a_label_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match=r"a label for every sample, got None for 2 of them \(sample 3"):
        InfoBatch(range(N), 4, strata=[None if i in (3, 7) else "a" for i in range(N)])
    with pytest.raises((TypeError, ValueError), match="strata must hold labels of one kind"):
        InfoBatch(range(N), 4, strata=np.array([1, "a"] * (N // 2), object))


@pytest.mark.parametrize("index", ["abc", ["a", "b"], object(), {"a": 1}])
def test_an_index_that_is_no_number_is_named(index: Any) -> None:
    train_data = InfoBatch(range(N), 4)
    with pytest.raises(TypeError, match="index must hold whole numbers"):
        train_data.update(torch.ones(2), index)
    with pytest.raises(TypeError, match="index must hold whole numbers"):
        train_data.weights_of(index)


@pytest.mark.parametrize("index", [[99, -1], torch.tensor([-1]), np.array([N])])
def test_weights_of_samples_that_are_not_there_are_refused(index: Any) -> None:
    with pytest.raises(IndexError, match=r"is outside the dataset of 12 samples \(0\.\.11\)"):
        InfoBatch(range(N), 4).weights_of(index)


def test_weights_of_a_list() -> None:
    assert InfoBatch(range(N), 4).weights_of([3, 4]).tolist() == [1.0, 1.0]
    assert InfoBatch(range(N), 4).weights_of([]).tolist() == []


@pytest.mark.parametrize("patience", [0, -1, "long", True])
def test_patience_is_a_time(patience: Any) -> None:
    with pytest.raises(ValueError, match="patience must be a number of seconds above 0"):
        InfoBatch(range(N), 4, patience=patience)


# -- types ------------------------------------------------------------------------------------------------------------

TYPED = """
import torch
from torch.utils.data import DataLoader, TensorDataset
import infobatch

a = infobatch.InfoBatch([1, 2, 3], 4)
b = infobatch.InfoBatch(torch.arange(4), 4)
c = infobatch.InfoBatch(TensorDataset(torch.arange(4)), 4)
loader = DataLoader(c, batch_size=2, sampler=c.sampler)
d: torch.Tensor = c.update(torch.ones(2))
e: torch.Tensor = c.loss
f = infobatch.static.list()
g = infobatch.scoring.classification.cross_entropy
c.sampller
infobatch.InfoBatch(3, 4)
"""


@pytest.mark.slow
def test_types_say_what_runs(tmp_path: Path) -> None:
    script = tmp_path / "typed.py"
    script.write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={tmp_path}", "--no-error-summary", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    errors = [line.partition(": error: ")[2] for line in done.stdout.splitlines() if "typed.py" in line]
    assert len(errors) == 2, done.stdout
    assert errors[0].startswith('"InfoBatch" has no attribute "sampller"')
    assert errors[1].startswith('Argument 1 to "InfoBatch" has incompatible type "int"')
