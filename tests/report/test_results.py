"""The notes that a reader gets on how far the figures can be trusted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infobatch.records import Measure
from infobatch.report.results import Results
from report.runs import run, runs


def notes(records: list[object], fixed: bool = True) -> str:
    return " ".join(note.text for note in Results.of(records, 0.5, fixed).notes())  # type: ignore[arg-type]


def test_a_sound_comparison_of_one_method_needs_no_note() -> None:
    assert notes(runs(["full", "infobatch"], range(5))) == ""


def test_a_note_says_that_several_methods_are_not_corrected_for() -> None:
    text = notes(runs(["full", "infobatch", "random", "infobatch-quantile"], range(5)))
    assert text == "Each interval holds at 95 % for its own method: there is no correction for comparing 3 methods."


@pytest.mark.parametrize(("seeds", "begins"), [(1, "One seed is a demonstration"), (2, "2 seeds are a demonstration")])
def test_few_seeds_are_no_result(seeds: int, begins: str) -> None:
    [note] = Results.of(runs(["full", "infobatch"], range(seeds)), 0.5).notes()
    assert note.text.startswith(begins)
    assert note.loud


def test_a_note_says_that_the_margin_was_not_fixed_before_the_runs() -> None:
    records = runs(["full", "infobatch"], range(3))
    assert notes(records, fixed=False) == "The margin was not fixed before the runs: verdicts depend on it."


def test_runs_that_did_not_take_turns_are_named() -> None:
    records = [*runs(["full"], range(3)), *(run("infobatch", seed, beside=("infobatch",)) for seed in range(3))]
    assert notes(records) == (
        "No measured speed-up, because these methods did not take turns with full data: InfoBatch."
    )
    _, pruned = Results.of(records, 0.5).methods
    assert (pruned.realised, pruned.efficiencies) == (None, [])
    assert pruned.ideal is not None


def test_figures_come_from_the_shared_seeds_and_a_note_says_so() -> None:
    results = Results.of([*runs(["full"], range(3)), *runs(["infobatch"], range(4))], 0.5)
    _, pruned = results.methods
    assert [record.seed for record in pruned.compared] == [0, 1, 2]
    assert len(pruned.values) == len(pruned.difference.values) == 3  # type: ignore[union-attr]
    [note] = results.notes()
    assert note.text == (
        "InfoBatch and full data do not both have seed 3: its figures are taken from the 3 shared, its curves "
        "from all seeds."
    )


def test_further_measures_judge_the_same_methods() -> None:
    measured = [
        replace(record, further=(Measure("faithfulness", record.value / 2, True),))
        for record in runs(["full", "infobatch", "random"], range(3))
    ]
    results = Results.of(measured, 0.5)
    [judged] = results.further
    assert [(outcome.method, outcome.number) for outcome in judged] == [
        (outcome.method, outcome.number) for outcome in results.methods
    ]
    assert judged[1].difference.mean == pytest.approx(results.methods[1].difference.mean / 2)  # type: ignore[union-attr]
