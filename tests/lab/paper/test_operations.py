import time

from infobatch.lab.paper import operations
from infobatch.lab.paper.operations import SIZES, measure


def test_every_operation_is_timed_at_every_size():
    timings = measure([1000, 300_000], repeats=2)
    assert [timing.operation for timing in timings][:3] == ["sort", "percentile", "mean"]
    for timing in timings:
        small, large = timing.measured
        assert 0 < small < large
        assert len(timing.paper) == len(SIZES)


def test_the_fastest_of_the_repetitions_counts(monkeypatch):
    pauses = iter([0.05, 0.001, 0.05])
    pause = {"pause": (lambda scores: time.sleep(next(pauses)), ("", ""))}
    monkeypatch.setattr(operations, "_OPERATIONS", pause)
    [timing] = measure([10], repeats=3)
    assert 1 <= timing.measured[0] < 40


def test_the_papers_figures_stand_beside_them():
    paper = {timing.operation: timing.paper for timing in measure([10, 10], repeats=1)}
    assert paper["sort"] == ("123.4", "1630.1")
    assert paper["mean"] == ("1.2", "6.4")
