"""One pass over a stream, in one process: each sample is let through or left out, by a random draw alone.

Sample number p of a pass is let through if the p-th draw, an independent whole number below 2**14, is below its group's
ticks. Given everything before it, its probability is therefore ticks / 2**14 exactly, and its weight is the inverse:
E[weight · let through] = 1, even though the ticks depend on the samples that were let through before. Draws depend on
the seed, rank, worker, pass and p alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..samples import with_index
from .bins import bin_of
from .groups import Groups
from .hashing import stable_hash
from .ids import Ids
from .keys import UNKNOWN, Keys
from .source import Reader
from .ticket import BITS, PERIOD, issue

_DRAWS = 1024  # made at a time


@dataclass(frozen=True)
class Draws:
    """Independent uniform numbers below 2**14, with access to the p-th number for any p."""

    seed: int
    rank: int
    worker: int
    number: int  # of the pass

    def block(self, number: int) -> list[int]:
        """The draws from number · 1,024 on."""
        entropy = np.random.SeedSequence([self.seed, self.rank, self.worker, self.number, number])
        draws = np.random.Generator(np.random.SFC64(entropy)).integers(0, PERIOD, _DRAWS)
        return draws.tolist()  # type: ignore[no-any-return]

    def after(self, position: int) -> Iterator[int]:
        """All draws from the one at ``position`` on."""
        number, done = divmod(position, _DRAWS)
        while True:
            yield from self.block(number)[done:]
            number, done = number + 1, 0


@dataclass(frozen=True)
class Gate:
    """How samples are known (by key, id or look), and the tables that decide on them."""

    kind: str  # "key", "id", "look" or "forward"
    ask: Callable[[Any], Any] | None
    groups: Groups
    keys: Keys | None
    ids: Ids | None
    look_batch: int
    tag: int
    ticket_key: str

    def add_ticket(self, sample: Any, name: int, ticks: int) -> Any:
        """The sample with its ticket."""
        return with_index(sample, issue(self.tag, name, ticks), self.ticket_key, "ticket_key")


class Passage:
    """The iterator over a stream's samples that are let through, each with its ticket."""

    def __init__(self, gate: Gate, reader: Reader, draws: Draws, begun: Callable[[int], None]) -> None:
        self.gate = gate
        self.reader = reader
        self.draws = draws
        self._begun = begun  # called with the number of passes that this worker has begun
        begun(draws.number + 1)
        self._samples: Iterator[Any] | None = None
        self._chunk: dict[str, Any] | None = None  # the beginning of the chunk that is being handed out, if any
        self._resumed: dict[str, Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._samples is None:
            self._samples = getattr(self, f"_by_{self.gate.kind}")()
        return next(self._samples)

    def state_dict(self) -> dict[str, Any]:
        """The place of the pass, for a StatefulDataLoader: the source's place and the number of the next draw."""
        if self._samples is None and self._resumed is not None:
            return self._resumed
        chunk = self._chunk or {"place": self.reader.place(), "ticks": [], "handed": 0}
        return {"pass": self.draws.number, **chunk}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from there; call it before the first sample is read."""
        self.draws = replace(self.draws, number=state_dict["pass"])
        self._begun(state_dict["pass"] + 1)
        self.reader.go_on(state_dict["place"])
        self._resumed = state_dict

    # -- one method per kind of gate -----------------------------------------------------------------------------

    def _pairs(self) -> Iterator[tuple[Any, int]]:
        """Each sample that is read, with its draw."""
        samples = iter(self.reader)
        return zip(samples, self.draws.after(self.reader.read), strict=False)

    def _by_forward(self) -> Iterator[Any]:
        for sample, _ in self._pairs():
            self.reader.read += 1
            yield self.gate.add_ticket(sample, 0, PERIOD)

    def _by_key(self) -> Iterator[Any]:
        gate, keys, reader = self.gate, self.gate.keys, self.reader
        assert keys is not None
        assert gate.ask is not None
        ask, ticks, tag, field = gate.ask, gate.groups.ticks.array.item, gate.tag, gate.ticket_key
        known: dict[Any, tuple[int, int]] = {}  # key -> (its group, its ticket without the ticks)
        hashes: dict[Any, int] = {}
        pairs = self._pairs()
        read = reader.read
        for sample, draw in pairs:
            read += 1
            try:
                key = ask(sample)
                entry = known.get(key)
                if entry is None and key not in hashes:
                    hashes[key] = stable_hash(key)
            except Exception as error:
                raise self._failure(error, sample) from error
            if entry is None:
                name = hashes[key]
                group = keys.find(name, key)
                if group == UNKNOWN:
                    reader.read = read
                    yield gate.add_ticket(sample, name, PERIOD)
                    continue
                entry = known[key] = group, tag + (name << BITS) - 1
            now = ticks(entry[0])
            if draw < now:
                reader.read = read
                yield with_index(sample, entry[1] + now, field, "ticket_key")
        reader.read = read

    def _by_id(self) -> Iterator[Any]:
        gate, ids, reader = self.gate, self.gate.ids, self.reader
        assert ids is not None
        assert gate.ask is not None
        ask, ticks, tag, field = gate.ask, gate.groups.ticks.array.item, gate.tag - 1, gate.ticket_key
        find = ids.finder()
        pairs = self._pairs()
        read = reader.read
        for sample, draw in pairs:
            read += 1
            try:
                name = stable_hash(ask(sample), "id")
            except Exception as error:
                raise self._failure(error, sample) from error
            group = find(name)
            now = PERIOD if group == UNKNOWN else ticks(group)
            if draw < now:
                reader.read = read
                yield with_index(sample, tag + (name << BITS) + now, field, "ticket_key")
        reader.read = read

    def _by_look(self) -> Iterator[Any]:
        gate, reader = self.gate, self.reader
        resumed = self._resumed or {"ticks": [], "handed": 0}
        decided, handed = list(resumed["ticks"]), int(resumed["handed"])
        place, pairs = reader.place(), self._pairs()
        while True:
            chunk = list(itertools.islice(pairs, gate.look_batch))
            if not chunk:
                return
            bins = bin_of(self._look_scores([sample for sample, _ in chunk]))
            ticks = decided or gate.groups.ticks.array[bins].tolist()
            decided = []
            for number, ((sample, draw), group, now) in enumerate(zip(chunk, bins.tolist(), ticks, strict=True), 1):
                if draw < now and number > handed:
                    self._chunk = {"place": place, "ticks": ticks, "handed": number}
                    yield gate.add_ticket(sample, group, now)
            handed = 0
            self._chunk = None
            reader.read += len(chunk)
            place = reader.place()

    def _failure(self, error: Exception, sample: Any) -> RuntimeError:
        return RuntimeError(
            f"{self.gate.kind}= failed on sample {self.reader.read} or a later one of this worker, {sample!r:.200}: "
            f"{type(error).__name__}: {error}. It must return a whole number, text, bytes, None or a tuple of these"
        )

    def _look_scores(self, samples: list[Any]) -> np.ndarray[Any, np.dtype[np.float32]]:
        assert self.gate.ask is not None
        scores = self.gate.ask(samples)
        scores = np.asarray(scores.detach().cpu() if hasattr(scores, "detach") else scores, np.float32)
        if scores.shape != (len(samples),):
            raise ValueError(
                f"look must return one score per sample: got shape {scores.shape} for a list of {len(samples)} samples"
            )
        return scores
