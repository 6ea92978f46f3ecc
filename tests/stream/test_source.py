"""Sources of every kind: read, shared out, and gone on with."""

import logging
from collections.abc import Iterator
from typing import Any

import datasets
import pytest
from torch.utils.data import IterableDataset, TensorDataset
from torchdata import nodes

from infobatch.stream.source import Reader, check_source


def numbers() -> Iterator[int]:
    yield from range(20)


class Plain(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return numbers()


class Counter:
    """An iterator with a state."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self.at == 20:
            raise StopIteration
        self.at += 1
        return self.at - 1

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.at = state_dict["at"]


class WithState(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return Counter()


def rows() -> Iterator[dict[str, int]]:
    for number in range(20):
        yield {"number": number}


SOURCES = {
    "function": lambda: numbers,
    "torch": Plain,
    "stateful iterator": WithState,
    "datasets": lambda: datasets.IterableDataset.from_generator(rows),
    "nodes": lambda: nodes.Loader(nodes.IterableWrapper(range(20))),
}


def number_of(sample: Any) -> int:
    return sample["number"] if isinstance(sample, dict) else sample


@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_goes_on_where_it_was(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    reader = Reader(SOURCES[kind](), 0, 1)
    samples = iter(reader)
    for expected in range(7):
        assert number_of(next(samples)) == expected
        reader.read += 1
    place = reader.place()
    again = Reader(SOURCES[kind](), 0, 1)
    again.go_on(place)
    assert again.place() == place
    with caplog.at_level(logging.WARNING):
        assert [number_of(sample) for sample in again] == list(range(7, 20))
    assert again.read == 7
    assert ("7 samples are read again and dropped" in caplog.text) == (kind in ("function", "torch"))


def test_a_function_is_shared_out_and_an_iterable_dataset_shares_itself_out() -> None:
    assert [list(Reader(numbers, share, 3)) for share in range(3)] == [list(range(share, 20, 3)) for share in range(3)]
    assert list(Reader(Plain(), 1, 3)) == list(range(20))
    reader = Reader(numbers, 1, 3)
    reader.go_on({"kind": "count", "read": 2})
    assert list(reader) == list(range(7, 20, 3))


def test_a_place_of_another_kind_of_source_is_refused() -> None:
    reader = Reader(numbers, 0, 1)
    reader.go_on({"kind": "source", "read": 3, "state": {}})
    with pytest.raises(ValueError, match="a source with state_dict"):
        iter(reader)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (numbers(), "pass the function that makes it"),
        (TensorDataset(), "use infobatch.InfoBatch"),
        ([1, 2], "map-style \\(list has"),
        (5, "an iterable data set or a function.*got int"),
    ],
)
def test_what_cannot_be_a_stream_is_refused(source: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        check_source(source)
