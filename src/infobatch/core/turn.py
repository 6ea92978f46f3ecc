"""A sample's turn in training: its index, and the seed and epoch from which its own random draws are made."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

_OF_SAMPLE, _OF_BATCH = 1, 2  # last in the seed, so that neither draws as the other does, nor as the plan


class Turn(int):
    """The index of a sample, which also says in which epoch of which run it is read; else a number like any other.

    The sampler hands it out, and the loader carries it to the worker that reads the sample. So a worker knows the
    epoch, also one that holds a copy of the data set from the first epoch.

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
    """The samples of these turns, each drawing from generators seeded by (seed, epoch, index).

    These are the global generators of torch (on the CPU), numpy and Python, from which transforms draw; afterwards they
    are as they were before.
    """
    samples = []
    with _global_generators_kept():
        for turn in turns:
            if not isinstance(turn, Turn):
                raise TypeError(
                    f"index {turn!r} did not come from train_data.sampler, so that the epoch of its random draws is "
                    "not known, which seed_samples=True needs: give the loader sampler=train_data.sampler, or "
                    "batch_sampler=train_data.batches(...); to look at a sample, read train_data.dataset"
                )
            _seed_global_generators(turn, _OF_SAMPLE)
            samples.append(dataset[int(turn)])
    return samples


@contextmanager
def own_draws(first: int) -> Iterator[None]:
    """Seed what a batch as a whole draws in this block, as a ``collate_fn`` may, by the turn of its first sample.

    With a plain number, where samples are not seeded, nothing is done.
    """
    if not isinstance(first, Turn):
        yield
        return
    with _global_generators_kept():
        _seed_global_generators(first, _OF_BATCH)
        yield


@contextmanager
def _global_generators_kept() -> Iterator[None]:
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
