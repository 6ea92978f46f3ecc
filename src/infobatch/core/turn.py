"""A sample's turn in training: its index, with the seed and epoch that its own random draws depend on."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

_OF_SAMPLE, _OF_BATCH = 1, 2  # last in the seed, so that draws differ from each other and from the plan's


class Turn(int):
    """The index of a sample: an ``int`` that also holds the run's seed and the epoch in which the sample is read.

    The sampler hands it out, and the loader carries it to the worker that reads the sample. So a worker knows the
    epoch, even if its copy of the data set is from the first epoch.

    >>> turn = Turn(7, seed=1, epoch=2)
    >>> turn, turn.seed, turn.epoch
    (7, 1, 2)
    """

    seed: int
    epoch: int

    def __new__(cls, index: int, seed: int, epoch: int) -> Turn:
        turn = super().__new__(cls, index)
        turn.seed, turn.epoch = seed, epoch
        return turn

    def __reduce__(self) -> tuple[type[Turn], tuple[int, int, int]]:
        return Turn, (int(self), self.seed, self.epoch)


def read(dataset: Any, turns: Sequence[int]) -> list[Any]:
    """The samples of these turns, each read with generators seeded by (seed, epoch, index).

    These are the global generators of torch (on the CPU), numpy and Python, which transforms use; afterwards their
    states are restored.
    """
    samples = []
    with _keep_global_generators():
        for turn in turns:
            if not isinstance(turn, Turn):
                raise TypeError(
                    f"index {turn!r} did not come from train_data.sampler, so that the epoch of its random draws is "
                    "not known, but seed_samples=True needs it: give the loader sampler=train_data.sampler, or "
                    "batch_sampler=train_data.batches(...); to look at a sample, read train_data.dataset"
                )
            _seed_global_generators(turn, _OF_SAMPLE)
            samples.append(dataset[int(turn)])
    return samples


@contextmanager
def own_draws(first: int) -> Iterator[None]:
    """Seed the random draws that are made for a whole batch in this block, as in a ``collate_fn``, by its first turn.

    It does nothing if ``first`` is a plain number, because samples are not seeded then.
    """
    if not isinstance(first, Turn):
        yield
        return
    with _keep_global_generators():
        _seed_global_generators(first, _OF_BATCH)
        yield


@contextmanager
def _keep_global_generators() -> Iterator[None]:
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        random.setstate(states[2])


def _seed_global_generators(turn: Turn, use: int) -> None:
    words = np.random.SeedSequence((turn.seed, turn.epoch, int(turn), use)).generate_state(4)
    first, second, third, fourth = words.tolist()
    torch.default_generator.manual_seed(first << 32 | second)
    np.random.seed(third)  # noqa: NPY002
    random.seed(fourth)
