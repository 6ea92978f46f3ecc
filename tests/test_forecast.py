"""Forecasts: the methods' own plans on a run's scores, with the measured growth, against what then happened."""

import importlib.util
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from typer.testing import CliRunner

import infobatch
from infobatch import checkpoint, methods
from infobatch.cli.app import app
from infobatch.forecast import bounds, forecast, forecast_from_state, grow_share, growth_rate

ROOT = Path(__file__).parents[1]
SIZE, EPOCHS = 1000, 20


def losses(skewed, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.lognormal(-2, 2, SIZE) if skewed else 1 + 0.05 * rng.random(SIZE)
    return torch.from_numpy(values).float()


def trained(epochs, skewed=True, **options):
    """A run after this many epochs, with the same losses in each."""
    values = losses(skewed)
    train_data = infobatch.InfoBatch(range(SIZE), EPOCHS, **options)
    loader = DataLoader(train_data, batch_size=100, sampler=train_data.sampler)
    for _ in range(epochs):
        for index in loader:
            train_data.update(values[index])
    return train_data


def rows(outlook):
    return {row.label: row for row in outlook.rows}


def test_the_share_left_out_now_is_what_the_run_itself_plans():
    train_data = trained(1)
    expected = rows(train_data.forecast())["infobatch"]
    train_data.set_epoch(1)
    assert expected.share == pytest.approx(1 - len(train_data.plan) / SIZE, abs=0.05)  # whole batches
    held = expected.share * len(range(1, 18)) / EPOCHS
    assert held == pytest.approx(train_data.stats.expected_saving, abs=0.04)
    assert expected.saving > held  # what is to come prunes more
    assert expected.saving <= 0.5


def test_a_noise_budget_that_has_pairs_is_planned_by_them():
    train_data = trained(2, method="infobatch-adaptive", noise=0.2)
    outlook = train_data.forecast()
    assert outlook.paired
    train_data.set_epoch(2)
    assert rows(outlook)["infobatch-adaptive:noise=0.2"].share == pytest.approx(
        1 - len(train_data.plan) / SIZE, abs=0.05
    )
    assert not trained(1, method="infobatch-adaptive").forecast().paired
    assert not trained(2).forecast().paired


def test_more_noise_never_saves_less_and_costs_what_it_says():
    by_label = rows(trained(2).forecast())
    budgets = [by_label[f"infobatch-adaptive:noise={noise}"] for noise in (0.05, 0.1, 0.2, 0.4)]
    assert sorted(row.saving for row in budgets) == [row.saving for row in budgets]
    for row, noise in zip(budgets, (0.05, 0.1, 0.2, 0.4), strict=True):
        assert row.noise == pytest.approx(1 + noise * 18 / 20, abs=0.03)
    assert by_label["random, rescaled"].noise > by_label["infobatch"].noise
    assert by_label["infobatch-quantile"].saving == pytest.approx(0.475 * 17 / 20, abs=0.01)


def test_the_advice_says_where_there_is_little_to_gain():
    spread = trained(2, skewed=False).forecast()
    assert spread.advice.startswith("Losses are spread out: at noise 0.2 you would save 15 %")
    assert "There is little to gain here." in str(spread)
    skewed = trained(1).forecast()
    assert 'With method="infobatch-adaptive" you would save about' in skewed.advice
    assert "from one scored epoch" in skewed.advice
    assert "from one scored epoch of 20" not in trained(2).forecast().about


def test_a_forecast_leaves_the_run_as_it_was():
    plain, asked = (trained(2, method=m) for m in ["infobatch-adaptive"] * 2)
    asked.forecast()
    for train_data in (plain, asked):
        train_data.set_epoch(2)
    assert plain.plan.indices.tolist() == asked.plan.indices.tolist()


def test_before_anything_is_scored_it_says_when_to_call():
    with pytest.raises(RuntimeError, match="0 of 1,000 samples have one: call it when the first epoch is over"):
        trained(0).forecast()
    train_data = trained(0)
    loader = iter(DataLoader(train_data, batch_size=100, sampler=train_data.sampler))
    train_data.update(losses(True)[next(loader)])
    with pytest.raises(RuntimeError, match="100 of 1,000 samples"):
        train_data.forecast()


@given(share=st.floats(0, 0.9), rate=st.floats(0, 3), noise=st.floats(0, 1))
def test_growing_shares_stay_between_the_current_share_and_the_top(share, rate, noise):
    floor, top = bounds("infobatch-adaptive", {"noise": noise})
    later = [grow_share(share, floor, top, rate, now=2, epoch=epoch) for epoch in range(2, 30)]
    assert later[0] == pytest.approx(share)
    assert all(after >= before - 1e-12 for before, after in itertools.pairwise(later))
    assert later[-1] <= max(top, share) + 1e-12


def test_methods_whose_share_does_not_depend_on_scores_do_not_grow():
    assert growth_rate("infobatch-quantile", 2) == growth_rate("random", 1) == growth_rate("infobatch-adaptive", 0) == 0
    assert growth_rate("infobatch", 9) == growth_rate("infobatch", 3) > 0
    assert set(methods.list()) > {"infobatch", "infobatch-quantile", "random", "infobatch-adaptive"}


def test_the_code_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "forecast.md").read_text(), re.S)
    x, y = torch.randn(200, 4), torch.randint(3, (200,))
    train_data = infobatch.InfoBatch(TensorDataset(x, y), EPOCHS)
    model = nn.Linear(4, 3)
    names = {
        "train_data": train_data,
        "loader": DataLoader(train_data, batch_size=20, sampler=train_data.sampler),
        "model": model,
        "criterion": nn.CrossEntropyLoss(reduction="none"),
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }
    exec(code, names)
    assert (tmp_path / "forecast.png").exists()


# -- from a state -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"method": "infobatch-adaptive"}, {"method": "ucb"}])
def test_a_state_gives_the_forecast_of_the_run(options):
    train_data = trained(2, **options)
    assert forecast_from_state(train_data.state_dict(), EPOCHS) == train_data.forecast()


def advise(*arguments):
    done = CliRunner().invoke(app, ["advise", *map(str, arguments)], env={"COLUMNS": "200"})
    return done.exit_code, " ".join(done.output.replace("│", " ").split())


def test_the_command_reads_a_state_alone_or_in_a_checkpoint(tmp_path):
    state = trained(2).state_dict()
    checkpoint.save(state, tmp_path / "alone.pt")
    torch.save({"model": {"weight": torch.ones(2)}, "callbacks": {"InfoBatch": state}}, tmp_path / "within.pt")
    picture = tmp_path / "forecast.png"
    code, alone = advise(tmp_path / "alone.pt", "--epochs", EPOCHS, "--out", picture, "--samples", SIZE)
    assert code == 0
    assert "infobatch-adaptive:noise=0.2" in alone
    assert "you would save about" in alone
    assert picture.read_bytes().startswith(b"\x89PNG")
    code, within = advise(tmp_path / "within.pt", "--epochs", EPOCHS)
    assert code == 0
    assert within == alone.replace(f" Picture: {picture}", "")


def test_the_command_says_what_is_wrong_with_a_state(tmp_path):
    path = tmp_path / "state.pt"
    state = trained(2).state_dict()
    checkpoint.save(trained(0).state_dict(), path)
    assert "0 of 1,000 samples have one" in advise(path, "--epochs", EPOCHS)[1]
    checkpoint.save(state, path)
    code, output = advise(path, "--epochs", EPOCHS, "--samples", 50_000)
    assert code == 2
    assert "the state of a data set of 1,000 samples, and --samples says 50,000" in output
    checkpoint.save({**state, "rejected": 3}, path)
    assert "damaged (its checksum" in advise(path, "--epochs", EPOCHS)[1]
    checkpoint.save({**state, "size": 900}, path)
    assert "scores must be a dense tensor" in advise(path, "--epochs", EPOCHS)[1]
    checkpoint.save({"model": torch.ones(2)}, path)
    assert "must hold one state of an InfoBatch" in advise(path, "--epochs", EPOCHS)[1]
    path.write_bytes(path.read_bytes()[:100])
    assert "is cut short or damaged" in advise(path, "--epochs", EPOCHS)[1]
    assert "No such file" in advise(tmp_path / "none.pt", "--epochs", EPOCHS)[1]
    assert "Missing option '--epochs'" in advise(path)[1]
    with pytest.raises(ValueError, match="from a different run"):
        infobatch.InfoBatch(range(900), EPOCHS).load_state_dict(state)


def test_without_matplotlib_only_the_picture_is_missing():
    code = """
import sys, numpy as np
sys.modules["matplotlib"] = None
from infobatch.forecast import forecast
outlook = forecast(np.arange(100, dtype=np.float32), 10, 2)
print(outlook)
try:
    outlook.draw("forecast.png")
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'a picture needs matplotlib, which is missing: pip install "infobatch[lab]"' in done.stdout
    assert "infobatch-adaptive:noise=0.4" in done.stdout


# -- against what then happened ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measure():
    spec = importlib.util.spec_from_file_location("measure", ROOT / "results" / "forecasts" / "measure.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_growth_brings_forecasts_nearer_to_what_happened(measure):
    """Tried on a few of the records behind the documentation's figures."""
    records = []
    for setup in (
        "fronts/c-sgd",
        "fronts/a-adamw",
        "fronts/cifar10-12k",
        "compare-budget/diffusion",
        "compare-cifar10",
    ):
        for folder in sorted((ROOT / "results" / setup).iterdir()):
            for path in sorted(folder.rglob("record.json"))[:1]:
                records.append(measure.RunRecord.from_json(path.read_text()))
    cases = measure.by_method(records)
    for method, scored in (("infobatch", 1), ("infobatch", 2), ("infobatch-adaptive", 2), ("infobatch-adaptive", 3)):
        known = cases[method, scored]
        held, grows = (
            measure.over_setups(known, lambda case, rate=rate: case.error(rate))
            for rate in (0.0, growth_rate(method, scored))
        )
        assert len(known) > 3
        assert grows < 0.75 * held, (method, scored)
    assert measure.over_setups(cases["infobatch-quantile", 1], lambda case: case.error(0.0)) < 1


def test_a_histogram_stands_for_the_scores_it_counts(measure):
    path = ROOT / "results" / "compare-cifar10" / "infobatch" / "seed-0" / "record.json"
    record = measure.RunRecord.from_json(path.read_text())
    scores = measure.scores_of(record, 1)
    assert len(scores) == record.total
    planned = 1 - record.kept[1] / record.total
    assert rows(forecast(scores, len(record.kept), 1))["infobatch"].share == pytest.approx(planned, abs=0.01)
    assert json.loads(path.read_text())["kept"][0] == record.total
