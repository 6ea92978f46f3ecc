"""Stopping and going on: bit for bit where the source can, and errors where a state does not fit."""

import io
import logging
from collections.abc import Iterator
from typing import Any

import datasets
import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from infobatch import Stream

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata's own


def rows(shards: list[int]) -> Iterator[dict[str, Any]]:
    for shard in shards:
        for number in range(100):
            yield {"number": float(shard * 100 + number), "label": number % 7}


def streamed() -> Any:
    return datasets.IterableDataset.from_generator(rows, gen_kwargs={"shards": list(range(8))})


def generated() -> Iterator[dict[str, Any]]:
    return rows(list(range(8)))


def label_of(sample: dict[str, Any]) -> int:
    return int(sample["label"])


def number_of(sample: dict[str, Any]) -> int:
    return int(sample["number"])


def looks(samples: list[dict[str, Any]]) -> list[float]:
    return [sample["label"] + 0.5 for sample in samples]


KINDS: dict[str, dict[str, Any]] = {
    "key": {"key": label_of},
    "id": {"id": number_of},
    "look": {"look": looks, "look_batch": 50},
    "forward": {},
}
Steps = list[tuple[list[float], list[int], float]]


def saved(state: Any) -> Any:
    """A state, by way of a file."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def run(make: Any, kind: str, loader: Any, stop: int | None = None, state: Any = None) -> tuple[Steps, Any]:
    """Two passes, or what is left of them; what every step saw, and the state at the ``stop``."""
    stream = Stream(make(), every=3, saving=0.4, **KINDS[kind])
    batches = loader(stream, batch_size=16)
    steps: Steps = []
    done = 0
    if state is not None:
        stream.load_state_dict(state["stream"])
        if state["loader"]:
            batches.load_state_dict(state["loader"])
        done = state["passes"]
    for passed in range(done, 2):
        for batch in batches:
            loss = (batch["number"] % 7 + 0.1).float()
            ticket = batch["ticket"]
            if kind == "forward":
                ticket = stream.choose(loss)
                loss = loss[ticket.positions]
            mean = float(stream.update(loss, ticket))
            steps.append((batch["number"].tolist(), getattr(ticket, "ticket", ticket).tolist(), mean))
            if len(steps) == stop:
                place = batches.state_dict() if loader is StatefulDataLoader else None
                return steps, saved({"stream": stream.state_dict(), "loader": place, "passes": passed})
    return steps, stream.summary()


@pytest.mark.parametrize("loader", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stateful_source_goes_on_bit_for_bit(kind: str, loader: Any) -> None:
    whole, summary = run(streamed, kind, loader)
    for stop in (4, 11, len(whole) - 5):
        before, state = run(streamed, kind, loader, stop)
        after, summary_after = run(streamed, kind, loader, state=state)
        assert before + after == whole
        assert summary_after == summary


def test_a_function_goes_on_too_and_says_what_it_costs(caplog: pytest.LogCaptureFixture) -> None:
    whole, _ = run(lambda: generated, "key", DataLoader)
    before, state = run(lambda: generated, "key", DataLoader, 9)
    with caplog.at_level(logging.WARNING):
        after, _ = run(lambda: generated, "key", DataLoader, state=state)
    assert before + after == whole
    assert "samples are read again and dropped" in caplog.text


def test_with_workers_a_stateful_loader_has_the_place() -> None:
    """Tables that are not renewed make the decisions the same whenever a worker looks."""

    def learned() -> dict[str, Any]:
        stream = Stream(streamed(), every=1, saving=0.4, key=label_of)
        for batch in DataLoader(stream, batch_size=16):
            stream.update((batch["number"] % 7 + 0.1).float(), batch["ticket"])
        return {**stream.state_dict(), "place": None}

    state = learned()

    def start() -> tuple[Stream, Any]:
        stream = Stream(streamed(), every=1, saving=0.4, key=label_of)
        stream.load_state_dict(state)
        return stream, StatefulDataLoader(stream, batch_size=16, num_workers=2)

    _, batches = start()
    whole = [batch["ticket"].tolist() for batch in batches]
    _, batches = start()
    steps = iter(batches)
    before = [next(steps)["ticket"].tolist() for _ in range(5)]
    place = saved(batches.state_dict())
    del steps
    _, batches = start()
    batches.load_state_dict(place)
    assert before + [batch["ticket"].tolist() for batch in batches] == whole


def test_with_workers_and_a_plain_loader_the_loss_of_the_place_is_told(caplog: pytest.LogCaptureFixture) -> None:
    stream = Stream(generated, key=label_of)
    for batch in DataLoader(stream, batch_size=64, num_workers=1):
        stream.update(batch["number"].float(), batch["ticket"])
    state = stream.state_dict()
    assert state["place"] is None
    with caplog.at_level(logging.WARNING):
        Stream(generated, key=label_of).load_state_dict(state)
    assert "with torch's DataLoader the source begins anew" in caplog.text


def test_a_state_that_does_not_fit_is_refused() -> None:
    stream = Stream(generated, key=label_of, noise=0.2)
    state = stream.state_dict()
    with pytest.raises(ValueError, match=r"different stream.*noise: 0.2 in the state, 0.3 here"):
        Stream(generated, key=label_of, noise=0.3).load_state_dict(state)
    with pytest.raises(ValueError, match="kind: 'key' in the state, 'id' here"):
        Stream(generated, id=number_of, noise=0.2).load_state_dict(state)
    with pytest.raises(ValueError, match="not the state of a Stream"):
        stream.load_state_dict({"version": 3})
    with pytest.raises(ValueError, match="reads up to 1: upgrade"):
        stream.load_state_dict({**state, "stream version": 2})
    with pytest.raises(ValueError, match="damaged"):
        stream.load_state_dict({**state, "updates": 5})
