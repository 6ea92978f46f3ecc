"""The progress of runs: live bars on a terminal, a line per epoch anywhere else, and the time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from ..records import Tick, title

BARS = 16  # shown at once, at most: bars of finished runs are hidden first


class TimeLeft:
    """The time that the remaining epochs will take, at the pace of those that are done.

    It is wall-clock time, and so includes the time between epochs. ``epochs`` is their number over all runs.
    """

    def __init__(self, epochs: float, now: Callable[[], float] = time.monotonic) -> None:
        self.epochs = epochs
        self._now, self._began = now, now()
        self._done = 0.0
        self._place: dict[tuple[str, int], float] = {}

    def note(self, tick: Tick) -> None:
        """Count the progress of a run."""
        key, at = (tick.method, tick.seed), tick.epoch + tick.done / tick.kept
        before = self._place.get(key)
        if before is None or at < before:  # a new run, perhaps resumed after some epochs
            before = tick.epoch
            self.epochs -= before
        self._done += at - before
        self._place[key] = at

    @property
    def share(self) -> float:
        """The share of the epochs that is done."""
        return min(self._done / self.epochs, 1.0) if self.epochs > 0 else 1.0

    def __str__(self) -> str:
        if not self._done:
            return "…"
        return duration((self._now() - self._began) / self._done * max(self.epochs - self._done, 0))


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(42), duration(600), duration(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 99.5 * 60 else f"{seconds / 3600:.1f} h"


@contextmanager
def show_progress(console: Console, left: TimeLeft | None = None) -> Iterator[Callable[[Tick], None]]:
    """Yield a function to call with each tick; it shows the progress on the console."""
    if not console.is_terminal:
        yield lambda tick: _print_line(console, tick, left)
        return
    bars: dict[tuple[int, str], TaskID] = {}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(complete_style="cyan", finished_style="cyan"),
        TextColumn("{task.fields[at]}", justify="right"),
        TextColumn("{task.fields[share]}", style="cyan"),
        TextColumn("{task.fields[loss]}"),
        TextColumn("{task.fields[seconds]}"),
    )
    # Few refreshes: drawing takes time from the training that is being measured.
    with Progress(*columns, console=console, refresh_per_second=4) as progress:
        whole = None
        if left is not None:
            whole = progress.add_task("all runs", total=1.0, at="", share="", loss="", seconds="")

        def update(tick: Tick) -> None:
            key = (tick.seed, tick.method)
            fields: dict[str, Any] = {
                "at": f"epoch {tick.epoch + 1}/{tick.epochs}",
                "share": f"{tick.kept / tick.total:4.0%} of the data{_format_saving(tick)}",
                "loss": f"loss {tick.loss:.3f}",
                "seconds": f"{tick.seconds:5.1f} s",
            }
            if key not in bars:
                _make_room(progress)
                name = f"{title(tick.method):<10} seed {tick.seed}"
                bars[key] = progress.add_task(name, total=tick.epochs, **fields)
            progress.update(bars[key], completed=tick.epoch + tick.done / tick.kept, **fields)
            if left is not None and whole is not None:
                left.note(tick)
                progress.update(whole, completed=left.share, at=f"{left} left")

        yield update


def _make_room(progress: Progress) -> None:
    """Hide the bar of a finished run if there are too many."""
    visible = [task for task in progress.tasks if task.visible]
    done = [task for task in visible if task.finished]
    if len(visible) >= BARS and done:
        progress.update(done[0].id, visible=False)


def _format_saving(tick: Tick) -> str:
    return f", saving {tick.saving:.0%} in all" if tick.saving else ""


def _print_line(console: Console, tick: Tick, left: TimeLeft | None) -> None:
    if left is not None:
        left.note(tick)
    if tick.done == tick.kept:
        console.print(
            f"{title(tick.method):<10} seed {tick.seed}  epoch {tick.epoch + 1:>3}/{tick.epochs}  "
            f"{tick.kept:>6,} samples ({tick.kept / tick.total:4.0%}){_format_saving(tick)}  loss {tick.loss:.3f}  "
            f"{tick.seconds:6.1f} s" + ("" if left is None else f"  {left} left"),
            highlight=False,
            soft_wrap=True,
        )
