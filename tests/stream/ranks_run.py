"""What ranks do in the tests of streams; as a script, under torchrun."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

from infobatch import Stream
from infobatch.distributed.ranks import Ranks

BATCH = 16


class Uneven(IterableDataset[Any]):
    """Rank r has 800 - 300 · r samples of its own."""

    def __iter__(self) -> Iterator[Any]:
        for number in range(800 - 300 * Ranks().here()[0]):
            yield torch.tensor([float(number % 4)]), number % 4


def label_of(sample: Any) -> int:
    return int(sample[1])


def train(folder: Path, workers: int = 0) -> None:
    """DDP over streams that end at different steps; what every rank did is noted."""
    torch.manual_seed(0)
    rank = Ranks().here()[0]
    stream = Stream(Uneven(), key=label_of, noise=0.5, every=4)
    model = DistributedDataParallel(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    steps = 0
    for x, _, ticket in stream.together(DataLoader(stream, batch_size=BATCH, num_workers=workers)):
        loss = stream.update((model(x).flatten() - 2 * x.flatten()) ** 2 + 0.01, ticket)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    stats = stream.stats
    found = {
        "steps": steps,
        "weights": [p.detach().clone() for p in model.parameters()],
        "ticks": torch.from_numpy(stream._groups.ticks.array[:6].copy()),
        "trained": {key.name: key.trained for key in stats.keys},
        "noise": stats.noise,
    }
    torch.save(found, folder / f"rank-{rank}.pt")


def forget_to_meet(folder: Path) -> None:
    """The plain loader, without ``together``."""
    stream = Stream(Uneven(), key=label_of)
    x, _, ticket = next(iter(DataLoader(stream, batch_size=BATCH)))
    try:
        stream.update(x.flatten(), ticket)
    except RuntimeError as error:
        (folder / f"rank-{Ranks().here()[0]}.txt").write_text(str(error))


def share_out(folder: Path) -> None:
    """A function as a source: each rank has its own samples."""

    def read() -> Iterator[int]:
        yield from range(200)

    stream = Stream(read, key=lambda number: number % 3, every=10_000)
    seen = [n for x, ticket in stream.together(DataLoader(stream, batch_size=10, num_workers=2)) for n in x.tolist()]
    torch.save({"seen": seen}, folder / f"rank-{Ranks().here()[0]}.pt")


def go_on(folder: Path) -> None:
    """Stop after a step at which ranks share what they learned, and go on: the same as without a stop."""

    def steps(stream: Stream, stop: int | None = None) -> list[list[int]]:
        seen = []
        for x, _, ticket in stream.together(DataLoader(stream, batch_size=BATCH)):
            stream.update(0.01 + x.flatten(), ticket)
            seen.append(ticket.tolist())
            if len(seen) == stop:
                torch.save(stream.state_dict(), folder / f"state-{Ranks().here()[0]}.pt")
                break
        return seen

    def make() -> Stream:
        return Stream(Uneven(), key=label_of, noise=0.5, every=4)

    whole = steps(make())
    before = steps(make(), 8)
    again = make()
    again.load_state_dict(torch.load(folder / f"state-{Ranks().here()[0]}.pt", weights_only=True))
    assert before + steps(again) == whole
    assert len(whole) > 12


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(Path(sys.argv[1]))
    dist.barrier()
    dist.destroy_process_group()
