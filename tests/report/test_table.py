import io
from dataclasses import replace

from rich.console import Console

from infobatch.report import Pair, RunRecord
from infobatch.report.table import comparison, verdicts

METRIC = "test accuracy, %"
FULL = RunRecord("full", 0, METRIC, True, 1000, (1000, 1000), (0.9, 0.5), (2.0, 2.0), (80.0, 90.0), 0.0)
PRUNED = RunRecord("infobatch", 0, METRIC, True, 1000, (1000, 600), (0.9, 0.5), (2.0, 1.2), (80.0, 89.0), 0.2)


def text(pairs):
    file = io.StringIO()
    Console(file=file, width=100).print(comparison(pairs))
    return [" ".join(line.split()) for line in file.getvalue().splitlines() if line.strip()]


def test_one_seed_shows_values_and_differences():
    rows = text([Pair(FULL, PRUNED)])
    assert rows[0] == "Full data and InfoBatch (seed 0)"
    assert "Test accuracy, % 90.00 89.00 -1.00" in rows
    assert "Samples trained on 2,000 1,600 -400" in rows
    assert "Training time, s 4.0 3.2 -0.8" in rows
    assert "Samples saved, % 20.0" in rows
    assert "Ideal speed-up (samples) 1.25 ×" in rows
    assert "Realised speed-up (time) 1.25 ×" in rows
    assert "Realised ÷ ideal 1.00" in rows


def test_several_seeds_show_means_spreads_and_the_paired_difference():
    better = Pair(replace(FULL, seed=1, values=(94.0,)), replace(PRUNED, seed=1, values=(93.0,)))
    rows = text([Pair(FULL, PRUNED), better])
    assert rows[0] == "Full data and InfoBatch (2 paired seeds, mean ± sd)"
    # The seeds differ by 4 points, the methods by 1 in each of them: pairing takes the seeds' spread out.
    assert "Test accuracy, % 92.00 ± 2.83 91.00 ± 2.83 -1.00 ± 0.00" in rows


def test_a_method_without_a_name_of_its_own_goes_by_its_key():
    rows = text([Pair(FULL, replace(PRUNED, method="ucb"))])
    assert rows[1] == "Full data ucb difference"


def test_verdicts_over_the_seeds_that_methods_share():
    records = [replace(FULL, seed=s, values=(0.0, 90.0 + s)) for s in range(3)]
    records += [replace(PRUNED, seed=s, values=(0.0, 89.9 + s + 0.1 * s)) for s in (0, 1, 2)]
    records += [replace(PRUNED, method="random", seed=0, values=(0.0, 80.0))]
    file = io.StringIO()
    Console(file=file, width=160).print(verdicts(records, 0.5))
    rows = [" ".join(line.split()) for line in file.getvalue().splitlines() if line.strip()]
    assert "InfoBatch 3 91.00 ± 1.10 +0.00 [-0.25, +0.25] 20.0 % 1.25 × 1.00 lossless within 0.5" in rows
    assert "Random 1 80.00 -10.00 20.0 % 1.25 × 1.00 one seed: no verdict" in rows
    assert any(row.startswith("Full data 3 91.00 ± 1.00 0.0 %") for row in rows)
