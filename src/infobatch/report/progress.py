"""Runs as they go on: live bars on a terminal, a line per epoch anywhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from .records import Tick, title


@contextmanager
def shown(console: Console) -> Iterator[Callable[[Tick], None]]:
    """Yields what to call with each tick."""
    if not console.is_terminal:
        yield lambda tick: _line(console, tick)
        return
    bars: dict[tuple[int, str], TaskID] = {}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(complete_style="cyan", finished_style="cyan"),
        TextColumn("epoch {task.fields[at]}", justify="right"),
        TextColumn("{task.fields[share]:4.0%} of the data", style="cyan"),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TextColumn("{task.fields[seconds]:5.1f} s"),
    )
    # Few refreshes: drawing takes time from the training that is being measured.
    with Progress(*columns, console=console, refresh_per_second=4) as progress:

        def update(tick: Tick) -> None:
            key = (tick.seed, tick.method)
            fields: dict[str, Any] = {
                "at": f"{tick.epoch + 1}/{tick.epochs}",
                "share": tick.kept / tick.total,
                "loss": tick.loss,
                "seconds": tick.seconds,
            }
            if key not in bars:
                name = f"{title(tick.method):<10} seed {tick.seed}"
                bars[key] = progress.add_task(name, total=tick.epochs, **fields)
            progress.update(bars[key], completed=tick.epoch + tick.done / tick.kept, **fields)

        yield update


def _line(console: Console, tick: Tick) -> None:
    if tick.done == tick.kept:
        console.print(
            f"{title(tick.method):<10} seed {tick.seed}  epoch {tick.epoch + 1:>3}/{tick.epochs}  "
            f"{tick.kept:>6,} samples ({tick.kept / tick.total:4.0%})  loss {tick.loss:.3f}  {tick.seconds:6.1f} s",
            highlight=False,
            soft_wrap=True,
        )
