import io
from dataclasses import replace

import pytest
from rich.console import Console

from infobatch.records import Tick
from infobatch.report.progress import BARS, TimeLeft, show_progress

HALF = Tick("infobatch", 0, epoch=1, epochs=4, done=300, kept=600, total=1000, loss=0.5, seconds=1.25)
END = Tick("infobatch", 0, epoch=1, epochs=4, done=600, kept=600, total=1000, loss=0.4, seconds=1.75)


def output(terminal, *ticks, left=None):
    file = io.StringIO()
    with show_progress(Console(file=file, force_terminal=terminal, width=120), left) as watch:
        for tick in ticks:
            watch(tick)
    return file.getvalue()


def test_without_a_terminal_an_epoch_is_one_plain_line():
    assert output(False, HALF, END).splitlines() == [
        "InfoBatch  seed 0  epoch   2/4     600 samples ( 60%)  loss 0.400     1.8 s"
    ]


def test_on_a_terminal_every_run_has_a_live_bar():
    full = Tick("full", 0, epoch=3, epochs=4, done=1000, kept=1000, total=1000, loss=0.3, seconds=4.0)
    text = output(True, HALF, full)
    last = text.rpartition("\x1b[2K")[2].splitlines()  # what was drawn after the last line was cleared
    assert all(part in last[0] for part in ("InfoBatch", "seed 0", "epoch 2/4", "60% of the data", "loss 0.500"))
    assert all(part in last[1] for part in ("Full data", "epoch 4/4", "100% of the data", "4.0 s"))


def test_the_expected_saving_is_shown_as_soon_as_it_is_known():
    known = replace(END, saving=0.314)
    assert "( 60%), saving 31% in all  loss" in output(False, known)
    assert "60% of the data, saving 31% in all" in output(True, known)


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self):
        return self.now


def test_time_left_is_the_epochs_left_at_the_pace_so_far():
    clock = Clock()
    left = TimeLeft(12, clock)
    assert str(left) == "…"
    clock.now = 30.0
    left.note(replace(HALF, epoch=0))  # half an epoch in 30 s: 11.5 more
    assert (str(left), left.share) == ("12 min", pytest.approx(0.5 / 12))
    clock.now = 60.0
    left.note(replace(END, epoch=0))
    assert str(left) == "11 min"
    clock.now = 100.0
    left.note(replace(END, method="full", epoch=0))
    assert str(left) == "8 min"


def test_a_run_that_goes_on_and_one_that_begins_anew_count_from_where_they_are():
    clock = Clock()
    left = TimeLeft(8, clock)  # two runs of 4
    clock.now = 10.0
    left.note(replace(END, epoch=2))  # of which two epochs were done before
    assert str(left) == "50 s"  # 5 of 6
    left.note(replace(END, epoch=3))
    clock.now = 30.0
    left.note(replace(END, epoch=0))  # the same method and seed of another comparison
    assert str(left) == "30 s"
    for epoch in (1, 2, 3):
        left.note(replace(END, epoch=epoch))
    assert (str(left), left.share) == ("0 s", 1.0)


def test_lines_and_bars_show_the_time_left():
    clock = Clock()
    left = TimeLeft(4, clock)
    clock.now = 7.0
    first = replace(END, epoch=0)
    assert output(False, first, left=left).endswith("1.8 s  21 s left\n")
    text = output(True, first, left=TimeLeft(4))
    last = text.rpartition("\x1b[2K")[2].splitlines()
    assert "all runs" in last[0]
    assert "left" in last[0]


def test_bars_of_finished_runs_make_room():
    ticks = [replace(END, method=f"m{number}", epoch=3) for number in range(BARS + 5)]
    text = output(True, *ticks)
    last = [line for line in text.rpartition("\x1b[2K")[2].splitlines() if "seed" in line]
    assert len(last) == BARS
    assert f"m{BARS + 4}" in last[-1]
