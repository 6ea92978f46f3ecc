"""What letting a sample of a stream through costs, and a step with workers."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from infobatch import Stream

from .step import small_cnn
from .timing import Comparison, compare

SAMPLES = 100_000
KEYS = 50


def read() -> Iterator[tuple[int, int]]:
    """Samples that cost nothing to read."""
    return zip(range(SAMPLES), itertools.cycle(range(KEYS)))


def learned(**options: Any) -> Stream:
    """A stream over :func:`read` that knows all its keys, or ids, and leaves 40 % out."""
    stream = Stream(read, saving=0.4, every=8, **options)
    for number, label, ticket in DataLoader(stream, batch_size=1024):
        stream.update(0.1 + (label % 7).float() + number % 2, ticket)
    return stream


def seconds(run: Callable[[], Iterable[Any]]) -> float:
    """Of this process, going through all samples: other processes on the machine do not count."""
    start = time.process_time()
    deque(run(), maxlen=0)
    return time.process_time() - start


def let_through(rounds: int) -> dict[str, float]:
    """Microseconds for each sample that is read, above those of the bare source, in turn with it."""
    asks: dict[str, dict[str, Any]] = {
        "key (bar 2)": {"key": lambda sample: sample[1]},
        "id (bar 3)": {"id": lambda sample: sample[0]},
        "look, 64 at a time": {"look": lambda samples: [sample[1] for sample in samples]},
    }
    figures = {}
    for name, options in asks.items():
        stream = learned(**options)
        pairs = [(seconds(lambda stream=stream: stream), seconds(read)) for _ in range(rounds + 1)][1:]
        cost = statistics.median(ours - bare for ours, bare in pairs) / SAMPLES * 1e6
        figures[f"stream, let-through cost by {name}, us a sample read"] = cost
    return figures


class Images(torch.utils.data.IterableDataset[Any]):
    """Pictures and labels, each worker its share; of every sample ``parts`` are read and the first is given out."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.picture = torch.randn(3, 32, 32)

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        start, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(start, self.size, step):
            yield self.picture, number % 10


def with_workers(rounds: int) -> Comparison:
    """A training pass with two workers, through a stream that lets all of it through, against the bare loader."""
    images, batch = Images(4096), 128
    model = small_cnn()
    model(torch.randn(2, 3, 32, 32))
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    stream = Stream(images, key=lambda sample: sample[1], noise=0.0)
    ours = DataLoader(stream, batch_size=batch, num_workers=2)
    theirs = DataLoader(images, batch_size=batch, num_workers=2)

    def train(loader: DataLoader[Any], mean: Callable[..., torch.Tensor]) -> None:
        for x, y, *ticket in loader:
            optimizer.zero_grad()
            mean(cross_entropy(model(x), y, reduction="none"), *ticket).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return compare(
        "pass of a small CNN over a stream by key, 2 workers, same samples",
        {"with": lambda: train(ours, stream.update), "without": lambda: train(theirs, torch.Tensor.mean)},
        rounds,
        1.02,
    )


def run(rounds: int) -> list[Comparison]:
    """All comparisons of this page."""
    return [with_workers(rounds)]
