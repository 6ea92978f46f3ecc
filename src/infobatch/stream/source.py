"""The source of a stream's samples: any iterable data, or a function that makes an iterator, and how to resume it."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Sized
from types import GeneratorType
from typing import Any, Protocol, runtime_checkable

from torch.utils.data import IterableDataset

_log = logging.getLogger(__name__)


@runtime_checkable
class Stateful(Protocol):
    """A source or an iterator that can save its place and resume from it."""

    def state_dict(self) -> dict[str, Any]:
        """The current place."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from a saved place."""


def check_source(source: Any) -> None:
    """Raise TypeError unless the source can be read from its beginning again and again."""
    if isinstance(source, IterableDataset):
        return
    if isinstance(source, GeneratorType):
        raise TypeError(
            "source is a generator, which can be read once and by one process only: pass the function that makes it, "
            "Stream(read, ...) in place of Stream(read(), ...)"
        )
    if hasattr(source, "__getitem__") and isinstance(source, Sized):
        raise TypeError(
            f"source is map-style ({type(source).__name__} has __len__ and __getitem__): use infobatch.InfoBatch, "
            "which knows every sample and saves more"
        )
    if not isinstance(source, Iterable) and not callable(source):
        raise TypeError(
            f"source must be an iterable data set or a function that returns an iterator, got {type(source).__name__}"
        )


class Reader:
    """One pass over a source, in one process: the samples of one of ``shares`` shares, and the place of the next one.

    An ``IterableDataset`` divides its samples among workers and ranks itself, as it does without us. From any other
    source, share s of n gets every n-th sample from the s-th on; every process reads the whole source.
    """

    def __init__(self, source: Any, share: int, shares: int, beginnings: list[dict[str, Any]] | None = None) -> None:
        self.source = source
        # A Hugging Face data set starts every pass from the state that was loaded last: the next pass loads this one.
        self._beginnings = [] if beginnings is None else beginnings
        self.share, self.shares = (0, 1) if isinstance(source, IterableDataset) else (share, shares)
        self.read = 0  # samples of this share
        self._iterator: Any = None
        self._place: dict[str, Any] | None = None

    def go_on(self, place: dict[str, Any]) -> None:
        """Start the pass from a place returned by :meth:`place`, not from the beginning."""
        self._place = place

    def __iter__(self) -> Iterator[Any]:
        place, source = self._place, self.source
        self._place = None
        by_source = isinstance(source, Stateful)
        if place is not None and by_source and place["kind"] == "source":
            if isinstance(self.source, IterableDataset):
                self._beginnings[:] = [source.state_dict()]
            source.load_state_dict(place["state"])
        elif by_source and self._beginnings:
            source.load_state_dict(self._beginnings.pop())
        iterator: Iterator[Any] = iter(source) if isinstance(source, Iterable) else iter(source())
        self._iterator = iterator
        skip = self.share
        if place is not None:
            self.read = place["read"]
            if place["kind"] == "iterator" and isinstance(iterator, Stateful):
                iterator.load_state_dict(place["state"])
            elif place["kind"] == "source" and by_source:
                pass
            elif place["kind"] == "count":
                skip += place["read"] * self.shares
                if place["read"]:
                    _log.warning(
                        "source %s cannot save its place: %d samples are read again and dropped. What follows is the "
                        "same only if the source gives the same samples in the same order",
                        type(source).__name__,
                        skip,
                    )
            else:
                raise ValueError(
                    f"state_dict: the place is that of a source with state_dict(), but {type(source).__name__} has "
                    "none: use the source of the saved run"
                )
        return itertools.islice(iterator, skip, None, self.shares) if (skip, self.shares) != (0, 1) else iterator

    def place(self) -> dict[str, Any]:
        """The place of the next sample: the source's own state, its iterator's, or how many samples were read."""
        if self._iterator is None and self._place is not None:
            return self._place
        if self.shares == 1 and isinstance(self.source, Stateful):
            return {"kind": "source", "read": self.read, "state": self.source.state_dict()}
        if self.shares == 1 and isinstance(self._iterator, Stateful):
            return {"kind": "iterator", "read": self.read, "state": self._iterator.state_dict()}
        return {"kind": "count", "read": self.read}
