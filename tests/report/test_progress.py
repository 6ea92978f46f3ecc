import io

from rich.console import Console

from infobatch.report import Tick
from infobatch.report.progress import shown

HALF = Tick("infobatch", 0, epoch=1, epochs=4, done=300, kept=600, total=1000, loss=0.5, seconds=1.25)
END = Tick("infobatch", 0, epoch=1, epochs=4, done=600, kept=600, total=1000, loss=0.4, seconds=1.75)


def output(terminal, *ticks):
    file = io.StringIO()
    with shown(Console(file=file, force_terminal=terminal, width=110)) as watch:
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
