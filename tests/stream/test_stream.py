"""The whole of a stream: unbiased, with any loader, and never wrong in silence."""

import copy
import math
import pickle
from collections.abc import Iterator
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from infobatch import Stream

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata's own
SAMPLES = 6000


def read() -> Iterator[dict[str, Any]]:
    for number in range(SAMPLES):
        yield {"number": float(number), "source": f"source {number % 5}"}


def source_of(sample: dict[str, Any]) -> str:
    return str(sample["source"])


def number_of(sample: dict[str, Any]) -> int:
    return int(sample["number"])


def looks(samples: list[dict[str, Any]]) -> list[float]:
    return [1.0 + number_of(sample) % 5 for sample in samples]


KINDS: dict[str, dict[str, Any]] = {"key": {"key": source_of}, "id": {"id": number_of}, "look": {"look": looks}}


def loss_of(number: torch.Tensor) -> torch.Tensor:
    return ((number % 5 + 1) ** 2 / 10).float()


TOTAL = float(loss_of(torch.arange(SAMPLES)).double().sum())


def train(stream: Stream, loader: Any, passes: int = 1) -> float:
    """The sum of the weighted losses of the last pass."""
    for _ in range(passes):
        total = 0.0
        for batch in loader:
            total += float(stream.update(loss_of(batch["number"]), batch["ticket"])) * len(batch["number"])
    return total


# -- unbiased ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["key", "look", "id"])
def test_every_sample_counts_once_in_expectation_while_tables_follow_what_was_let_through(kind: str) -> None:
    """Per sample, over many runs in which every decision feeds back into the next ones."""

    def few() -> Iterator[tuple[int, int]]:
        for number in range(60):
            yield number, number % 3

    ask = {
        "key": {"key": lambda s: s[1]},
        "id": {"id": lambda s: s[0]},
        "look": {"look": lambda ss: [s[1] for s in ss]},
    }
    runs = 100
    weight = np.zeros((runs, 60))
    for run in range(runs):
        stream = Stream(few, noise=1.0, every=2, seed=run, look_batch=4, **ask[kind])
        for _ in range(2 if kind == "id" else 1):
            weight[run] = 0
            for number, _, ticket in DataLoader(stream, batch_size=4):
                # Losses depend on who was let through: a design whose draws are not independent fails here.
                stream.update(0.1 + (number % 3) * (1 + 0.5 * torch.sin(number.float())), ticket)
                weight[run, number.numpy()] = (2**14 / ((ticket & (2**14 - 1)) + 1)).numpy()
    assert weight.min() == 0  # something was left out
    error = (weight.mean(0) - 1) / np.maximum(weight.std(0) / math.sqrt(runs), 1e-9)
    assert np.abs(error[weight.std(0) > 0]).max() < 4.5
    assert abs(weight.mean() - 1) < 4 * weight.mean(1).std() / math.sqrt(runs)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_the_sum_of_the_losses_is_that_of_the_whole_stream(kind: str, workers: int) -> None:
    stream = Stream(read, noise=0.3, every=4, **KINDS[kind])
    total = train(stream, DataLoader(stream, batch_size=32, num_workers=workers), 2 if kind == "id" else 1)
    stats = stream.stats
    spread = math.sqrt(0.3 * float((loss_of(torch.arange(SAMPLES)) ** 2).sum()) * 5)  # far more than there is
    assert abs(total - TOTAL) < spread
    assert 0.1 < stats.saving < 0.6
    assert stats.noise < 1.35
    assert stats.stands_for == pytest.approx(SAMPLES * (2 if kind == "id" else 1), rel=0.05)


def test_batches_are_full() -> None:
    stream = Stream(read, key=source_of, noise=0.5, every=2)
    sizes = [len(batch["number"]) for batch in iterated(stream, DataLoader(stream, batch_size=32))]
    assert set(sizes[:-1]) == {32}


def iterated(stream: Stream, loader: Any) -> Iterator[Any]:
    for batch in loader:
        stream.update(loss_of(batch["number"]), batch["ticket"])
        yield batch


def test_a_wanted_saving_is_met_at_the_least_noise() -> None:
    stream = Stream(read, key=source_of, saving=0.5, every=2)
    train(stream, DataLoader(stream, batch_size=32))
    by_name = {key.name: key for key in stream.stats.keys}
    assert sum(key.keep for key in by_name.values()) / 5 == pytest.approx(0.5, abs=0.03)
    assert [f"source {n}" for n in range(5)] == sorted(by_name, key=lambda name: by_name[name].keep)
    assert "source 0  trained" in stream.summary()


def test_choosing_within_a_batch() -> None:
    stream = Stream(read, noise=0.3)
    total = 0.0
    for batch in DataLoader(stream, batch_size=50):
        loss = loss_of(batch["number"])
        chosen = stream.choose(loss)
        assert len(chosen) < 50
        total += float(stream.update(loss[chosen.positions], chosen)) * 50
    assert total == pytest.approx(TOTAL, rel=0.03)
    assert stream.stats.saving > 0.25
    assert stream.stats.noise == pytest.approx(1.3, rel=0.03)


def test_steps_on_the_scale_of_the_whole_stream() -> None:
    means = []
    for scale in ("samples", "steps"):
        stream = Stream(read, key=source_of, saving=0.5, every=2, scale=scale)
        means.append([])
        for batch in DataLoader(stream, batch_size=50):
            means[-1].append(float(stream.update(loss_of(batch["number"]), batch["ticket"])))
    assert np.mean(means[1][20:]) == pytest.approx(TOTAL / SAMPLES, rel=0.03)
    assert np.mean(means[0][20:]) == pytest.approx(2 * TOTAL / SAMPLES, rel=0.03)
    assert float(stream.loss) == pytest.approx(TOTAL / SAMPLES, rel=0.5)


@pytest.mark.parametrize("scale", ["samples", "steps"])
def test_weights_for_losses_that_are_summed_otherwise(scale: str) -> None:
    stream = Stream(read, key=source_of, saving=0.5, every=2, scale=scale)
    for number, batch in enumerate(DataLoader(stream, batch_size=50), 1):
        loss = loss_of(batch["number"])
        weight = stream.weights_of(batch["ticket"])
        assert float(stream.update(loss, batch["ticket"])) == pytest.approx(float(weight.float() @ loss) / len(loss))
        assert stream.batches_done == number


# -- with any loader --------------------------------------------------------------------------------------------------


class Numbers(IterableDataset[Any]):
    """Shares itself out to workers, as torch's documentation says."""

    note = "kept"

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        start, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(start, 400, step):
            yield torch.tensor(float(number)), number % 4


SPAWNED = {"num_workers": 2, "multiprocessing_context": "spawn", "persistent_workers": True}


@pytest.mark.parametrize("loader", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2}, pytest.param(SPAWNED, marks=pytest.mark.slow)], ids=["0", "2", "spawned"]
)
def test_nothing_is_lost_or_doubled_before_anything_is_known(loader: Any, options: dict[str, Any]) -> None:
    stream = Stream(Numbers(), key=label_of, every=10_000)
    batches = loader(stream, batch_size=16, **options)
    for _ in range(2):
        numbers = [number for x, _, ticket in batches for number in x.tolist() if stream.update(x, ticket) is not None]
        assert sorted(numbers) == list(range(400))
    assert stream.note == "kept"


def label_of(sample: Any) -> int:
    return int(sample[1])


def test_workers_share_a_function_out_and_see_what_the_main_process_learns() -> None:
    stream = Stream(read, key=source_of, saving=0.6, every=1)
    loader = DataLoader(stream, batch_size=16, num_workers=2, prefetch_factor=1)
    numbers = [number for batch in iterated(stream, loader) for number in batch["number"].tolist()]
    assert len(set(numbers)) == len(numbers) < 0.6 * SAMPLES
    assert len({int(number) % 2 for number in numbers}) == 2  # both workers
    assert sorted(key.name for key in stream.stats.keys) == [f"source {n}" for n in range(5)]


def test_two_passes_draw_anew() -> None:
    stream = Stream(read, key=source_of, saving=0.5, every=1)
    passes = []
    for _ in range(3):
        loader = DataLoader(stream, batch_size=32)
        passes.append({number for batch in iterated(stream, loader) for number in batch["number"].tolist()})
    assert passes[1] != passes[2]


def test_the_same_seed_gives_the_same_run() -> None:
    def run(seed: int) -> list[int]:
        stream = Stream(read, key=source_of, seed=seed, every=3)
        loader = DataLoader(stream, batch_size=32)
        return [ticket for batch in iterated(stream, loader) for ticket in batch["ticket"].tolist()]

    assert run(1) == run(1) != run(2)


def test_streams_of_hugging_face() -> None:
    data = datasets.IterableDataset.from_generator(read).map(lambda row: {**row, "twice": 2 * row["number"]})
    stream = Stream(data, key=source_of, noise=0.3, every=4)
    assert train(stream, DataLoader(stream, batch_size=32)) == pytest.approx(TOTAL, rel=0.05)
    stream.set_epoch(3)  # the data set's own


def test_it_pickles_and_copies() -> None:
    stream = Stream(Numbers(), key=label_of, every=1)
    for x, _, ticket in DataLoader(stream, batch_size=16):
        stream.update(x, ticket)
    for other in (copy.deepcopy(stream), pickle.loads(pickle.dumps(stream))):
        assert other.stats.trained == stream.stats.trained
        assert len(list(DataLoader(other, batch_size=16))) > 0


# -- never wrong in silence -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"key": source_of, "id": number_of}, ValueError, "key and id are given"),
        ({"key": "source"}, TypeError, "key must be a function of a sample, got 'source'"),
        ({"noise": 0.1, "saving": 0.3}, ValueError, "pass noise, the budget, or saving"),
        ({"noise": -1}, ValueError, "noise must be a number from 0 on"),
        ({"saving": 0.95}, ValueError, "saving must lie in \\(0, 1 - floor\\)"),
        ({"size": "small"}, ValueError, "size must be one of"),
        ({"scale": "step"}, ValueError, "did you mean 'steps'"),
        ({"floor": 0}, ValueError, "floor must lie in \\(0, 1\\]"),
        ({"every": 0}, ValueError, "every must be at least 1"),
        ({"slots": 5}, ValueError, "slots=5 is only for key= and id="),
        ({"slots": 0, "key": source_of}, ValueError, "slots must be at least 1"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Stream(read, **options)


def test_wrong_updates() -> None:
    stream = Stream(Numbers(), key=label_of)
    x, y, ticket = next(iter(DataLoader(stream, batch_size=16)))
    with pytest.raises(ValueError, match="not labels or an index"):
        stream.update(x, y)
    with pytest.raises(ValueError, match="one number per loss"):
        stream.update(x[:3], ticket)
    with pytest.raises(ValueError, match='reduction="none"'):
        stream.update(x.mean(), ticket)
    with pytest.raises(ValueError, match="score has 3 values for 16 losses"):
        stream.update(x, ticket, score=x[:3])
    other = Stream(Numbers(), key=label_of, seed=3)
    with pytest.raises(ValueError, match="and those of this stream"):
        other.update(x, ticket)
    with pytest.raises(RuntimeError, match="lets samples through by key"):
        stream.choose(x)
    with pytest.raises(TypeError):
        len(stream)  # type: ignore[arg-type]
    assert stream.summary() == "stream: no loss has come back yet"


def test_a_taken_ticket_key_is_refused() -> None:
    stream = Stream(read, key=source_of, ticket_key="number")
    with pytest.raises(ValueError, match="ticket_key='number' is already a key"):
        next(iter(stream))


def test_losses_that_are_not_finite_are_counted_and_not_booked() -> None:
    stream = Stream(Numbers(), key=label_of, every=1)
    for x, _, ticket in DataLoader(stream, batch_size=16):
        loss = torch.where(x % 7 == 0, torch.nan, x)
        stream.update(loss, ticket)
    assert stream.stats.rejected > 20
    assert all(math.isfinite(key.size) for key in stream.stats.keys)
    assert "not finite" in stream.summary()


def test_keys_without_room_and_ids_that_collide_are_told() -> None:
    stream = Stream(read, key=number_of, slots=50, every=1)
    train(stream, DataLoader(stream, batch_size=100))
    assert f"{SAMPLES - 50:,} more keys found all 50 slots taken" in stream.summary()
    stream = Stream(read, id=number_of, slots=50, every=1)
    train(stream, DataLoader(stream, batch_size=100))
    assert "50 of 50 slots hold an id" in stream.summary()
    assert stream.stats.collisions >= SAMPLES - 50


def test_the_loss_is_left_alone_and_has_a_gradient() -> None:
    stream = Stream(Numbers(), key=label_of)
    x, _, ticket = next(iter(DataLoader(stream, batch_size=16)))
    loss = (x + 1).requires_grad_()
    before = loss.detach().clone()
    stream.update(loss, ticket).backward()
    assert torch.equal(loss.detach(), before)
    assert torch.allclose(loss.grad, torch.full((16,), 1 / 16))
