import io
from dataclasses import replace

import pytest
from rich.console import Console

from infobatch.records import Measure, RunRecord
from infobatch.report.outcome import group_by_method
from infobatch.report.results import Results
from infobatch.report.table import Line, compare_with_paper, further_table, timings, verdict_table

METRIC = "test accuracy, %"
FULL = RunRecord("full", 0, METRIC, True, 1000, (1000, 1000), (0.9, 0.5), (2.0, 2.0), (80.0, 90.0), 0.0)
PRUNED = RunRecord("infobatch", 0, METRIC, True, 1000, (1000, 600), (0.9, 0.5), (2.0, 1.2), (80.0, 89.0), 0.2)


def test_verdicts_over_the_seeds_that_methods_share():
    records = [replace(FULL, seed=s, values=(0.0, 90.0 + s)) for s in range(3)]
    records += [replace(PRUNED, seed=s, values=(0.0, 89.9 + s + 0.1 * s)) for s in (0, 1, 2)]
    records += [replace(PRUNED, method="random", seed=0, values=(0.0, 80.0))]
    rows = rows_of(verdict_table(Results.of(records, 0.5)))
    assert rows[:3] == [
        "test accuracy, %, , margin 0.5",
        "saved",
        "test accuracy, % (seeds) difference (95 %) faster verdict",
    ]
    assert rows[4:] == [
        *("Full data 0.0 %", "91.00 ± 1.00 (3)"),
        *("InfoBatch +0.00 [-0.25, +0.25] 20.0 % lossless within 0.5", "91.00 ± 1.10 (3) 1.25 ×"),
        *("Random -10.00 20.0 % too few seeds", "80.00 (1) 1.25 ×"),
    ]
    # One more run, which shares no seed with full data, is in no figure: mean and difference are of the same runs.
    more = replace(PRUNED, method="random", seed=7, values=(0.0, 90.0))
    assert rows_of(verdict_table(Results.of([*records, more], 0.5))) == rows


def test_only_runs_that_took_turns_have_a_speed_up():
    alone = replace(PRUNED, beside=("infobatch",))
    assert "89.00 (1)" in rows_of(verdict_table(Results.of([FULL, alone], 0.5)))
    assert "89.00 (1) 1.25 ×" in rows_of(
        verdict_table(Results.of([FULL, replace(alone, beside=("full", "infobatch"))], 0.5))
    )
    slow = replace(PRUNED, preparation=4.8)  # seconds that it took to select
    assert "89.00 (1) 0.50 ×" in rows_of(verdict_table(Results.of([FULL, slow], 0.5)))


LONG = "infobatch-adaptive:noise=0.2,steps=stay"


@pytest.mark.parametrize(("margin", "digits"), [(0.2, 2), (0.002, 4), (0.00002, 6)])
def test_a_terminal_of_80_columns_shows_everything_uncut(margin, digits):
    records = [
        replace(run, method=method, seed=seed, values=(0.0, run.value + shift), noise=(1.0, 1.28 if shift else 1.0))
        for method, run, shift in (("full", FULL, 0), (LONG, PRUNED, 0.9), ("infobatch-quantile", PRUNED, -8.5))
        for seed in range(12)
    ]
    file = io.StringIO()
    Console(file=file, width=80).print(verdict_table(Results.of(records, margin)))
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in file.getvalue()
    [first] = [line for line in lines if line.startswith("infobatch-adaptive:")]
    assert f"-0.1{'0' * (digits - 1)} [-0.1{'0' * (digits - 1)}, -0.1{'0' * (digits - 1)}]  20.0 %   1.14  " in first
    # Column by column: the name and the verdict go on below.
    parts = file.getvalue().split()
    assert "".join(word for word in parts if word in ("infobatch-adaptive:", "noise=0.2,", "steps=stay")) == LONG
    verdict = next(line.index("verdict") for line in lines if "verdict" in line)
    words = " ".join(" ".join(line[verdict:] for line in lines).split())
    assert f"worse by more than {margin:g}" in words


def test_the_noise_factor_has_a_column_where_a_record_has_it():
    new = replace(PRUNED, noise=(1.0, 1.28))
    rows = rows_of(verdict_table(Results.of([FULL, new], 0.5)))
    assert "test accuracy, % (seeds) difference (95 %) faster noise verdict" in rows
    assert "Full data 0.0 %" in rows  # an old record beside a new one
    assert "InfoBatch -1.00 20.0 % 1.14 too few seeds" in rows
    assert rows[-1] == "noise 1.2: as if batches were 1.2 times smaller"
    assert "noise" not in " ".join(rows_of(verdict_table(Results.of([FULL, PRUNED], 0.5))))


def test_a_diverged_run_has_no_difference():
    rows = rows_of(verdict_table(Results.of([FULL, replace(PRUNED, values=(80.0, float("nan")))], 0.5)))
    assert "InfoBatch 20.0 % a run diverged" in rows


def rows_of(table, width=200):
    file = io.StringIO()
    Console(file=file, width=width).print(table)
    return [" ".join(line.split()) for line in file.getvalue().splitlines() if line.strip()]


def test_further_measures_have_their_own_differences():
    def run(record, seed, error, probe):
        measures = (Measure("error", error, False), *([Measure("probe, %", probe, True)] if probe else []))
        return replace(record, seed=seed, further=measures)

    records = [run(FULL, 0, 0.5, 40.0), run(PRUNED, 0, 0.4, 41.0), run(FULL, 1, 0.6, 42.0), run(PRUNED, 1, 0.5, None)]
    rows = rows_of(further_table(Results.of(records, 0.5)))
    assert "error Full data 2 0.55 ± 0.07071" in rows
    assert "error InfoBatch 2 0.45 ± 0.07071 +0.1 [+0.1, +0.1]" in rows  # less error is better
    assert "probe, % InfoBatch 1 41 +1" in rows  # one seed has no interval


def test_measured_figures_stand_beside_the_papers():
    full = [replace(FULL, seed=s, values=(0.0, 90.0 + s), recipe={"epochs": 2}) for s in range(3)]
    runs = [replace(PRUNED, seed=s, values=(0.0, 89.9 + 1.1 * s), recipe={"epochs": 2}) for s in range(3)]
    whole, pruned = group_by_method([*full, *runs])
    [_, single] = group_by_method([*full, runs[0]])
    lines = [
        Line("full data", whole, "95.6"),
        Line("InfoBatch", pruned, "95.5", "41.3"),
        Line("one seed", single, "95.0", "30"),
        Line("not yet", None, "90.0", "30"),
        Line("Swin-T", None, "81.5", note="paper preset only"),
    ]
    rows = rows_of(compare_with_paper("Table 6", lines))
    assert rows[0] == "Table 6"
    assert "full data 95.6 91.00 ± 1.00 3 0.0" in rows
    assert "InfoBatch 95.5 91.00 ± 1.10 +0.00 [-0.25, +0.25] 3 41.3 20.0" in rows
    assert "one seed 95.0 89.90 1 30 20.0" in rows
    assert "not yet 90.0 - 0 30 -" in rows
    assert "Swin-T 81.5 paper preset only 0 -" in rows


def test_costs_are_the_librarys_and_the_preparations_as_a_share_of_the_training_time():
    dynamic = replace(PRUNED, overhead=0.032, recipe={"epochs": 2})
    static = replace(PRUNED, method="static-el2n", overhead=0.0, preparation=16.0, recipe={"epochs": 2})
    [pruned, selected] = group_by_method([dynamic, static, replace(static, seed=1, preparation=16.2)])
    lines = [
        Line("InfoBatch", pruned, "76.5", "40", "10.5 h", "0.0028 h"),
        Line("EL2N", selected, "", "40", "10.5 h", "> 17.5 h"),
        Line("none", None),
    ]
    rows = rows_of(compare_with_paper("Table 2", lines, costs=True))
    assert "InfoBatch 76.5 89.00 1 40 20.0 10.5 h 0.0028 h 3.2 0.032 1.0 %" in rows
    assert "EL2N 89.00 ± 0.00 2 40 20.0 10.5 h > 17.5 h 3.2 16 503.1 %" in rows
    assert "none - 0 - - - -" in rows
    [_, alone] = group_by_method([replace(FULL, recipe={"epochs": 2}), replace(dynamic, beside=("infobatch",))])
    assert "alone 89.00 1 20.0 - 0.032 1.0 %" in rows_of(compare_with_paper("", [Line("alone", alone)], costs=True))
    assert "time, paper" not in " ".join(rows_of(compare_with_paper("Table 1", lines[2:], costs=True)))


def test_timings_by_size():
    rows = rows_of(timings("Table 11", ["1M", "14M"], [("sort", ("123.4", "1630.1"), (25.14, 461.7))]))
    assert "ms 1M, paper measured 14M, paper measured" in rows
    assert "sort 123.4 25.1 1630.1 461.7" in rows
