"""Comparisons on a function of the user's own: real processes, and what is said where something is wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from torch.utils.data import DataLoader
from typer.testing import CliRunner

import infobatch
from infobatch.cli.app import app
from infobatch.lab import child
from infobatch.lab.function import OwnFunction
from infobatch.lab.method import MethodSpec
from infobatch.lab.own import OwnComparison, check_methods
from infobatch.lab.process import OUTPUT
from infobatch.lab.runs import EPOCHS, MARGIN, RECORD, read_results
from infobatch.lab.trial import Notes
from infobatch.records import RunRecord
from infobatch.report import export, page
from infobatch.report.results import Results
from infobatch.report.table import tell

# Losses that are made up cost nothing to train, and no optimiser is loaded.
SCRIPT = '''
import os, sys, time
from pathlib import Path
import torch

DATA = torch.arange(200.0)


def loop(trial, train_data, epochs, batch_size=20):
    for epoch in range(epochs):
        for x in trial.loader(train_data, batch_size):
            train_data.update((x + 1) / 200)


def train(trial):
    train_data = trial.prune(DATA, 4, ratio=0.5)
    loop(trial, train_data, train_data.num_epochs)
    print("trained by", trial.method, "with seed", trial.seed)
    return {"accuracy": 0.9 + 0.01 * trial.seed, "loss": 0.5, "name": "made up"}


def fails_once(trial):
    """The second method fails with seed 1, until a file says otherwise."""
    if trial.method == "infobatch" and trial.seed == 1 and not Path("mended").exists():
        print("about to fail")
        raise OSError("the disk is full")
    if trial.method == "infobatch" and trial.seed == 2 and not Path("mended").exists():
        os.kill(os.getpid(), 9)
    return train(trial)["accuracy"]


def slow(trial):
    """Goes on from its own checkpoint, and waits in epoch 2 until it may go on."""
    path = trial.folder / "state.pt"
    train_data = trial.prune(DATA, 4)
    if path.exists():
        train_data.load_state_dict(torch.load(path))
    print("begins with epoch", train_data.epoch)
    loader = trial.loader(train_data, 20)
    for epoch in range(train_data.epoch, train_data.num_epochs):
        while epoch == 2 and not Path("go").exists():
            Path("waiting").write_text(str(os.getpid()))
            time.sleep(0.02)
        for x in loader:
            train_data.update((x + 1) / 200)
        torch.save(train_data.state_dict(), path)
    return 1.0


def never_loaded():
    pass
'''


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "my_train.py"
    path.write_text(SCRIPT)
    return path


def command(*arguments):
    code = "from infobatch.cli import main; main()"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def comparison(function, methods=("full", "infobatch"), seeds=(0, 1), **options):
    own = OwnFunction.parse(f"my_train.py:{function}")
    return OwnComparison(own, [MethodSpec.parse(m) for m in methods], seeds, Path("runs") / own.folder, **options)


def record(method, seed, function="train"):
    path = Path("runs") / f"my_train-{function}" / method / f"seed-{seed}" / RECORD
    return RunRecord.from_json(path.read_text())


def test_the_command_compares_a_function_and_leaves_what_recipes_leave(script):
    methods = "full,infobatch,infobatch-adaptive:noise=0.2,steps=stay,full-shortened"
    done = command(
        "compare",
        "my_train.py:train",
        "--methods",
        methods,
        "--seeds",
        1,
        "--metric",
        "accuracy",
        "--lower",
        "loss",
        "--margin",
        "0.02",
    )
    out, err = done.communicate(timeout=240)
    assert done.returncode == 0, err
    assert "accuracy, my_train.py:train, margin 0.02" in out
    assert "Full data  seed 0  epoch   4/4" in out
    assert "Also measured" in out
    full, pruned, stays, short = (
        record(m, 0) for m in ("full", "infobatch", "infobatch-adaptive-noise=0.2,steps=stay", "full-shortened")
    )
    assert full.kept == (200,) * 4
    assert full.saving == 0
    assert pruned.kept[0] == 200 > pruned.kept[1]
    assert pruned.saving == pytest.approx(1 - sum(pruned.kept) / 800)
    assert pruned.losses == pytest.approx([0.5025] * 4, abs=0.05)  # of all the data, whatever was left out
    assert len(pruned.noise) == len(pruned.histograms) == len(pruned.times) == 4
    assert sum(pruned.histograms[1]) == 200
    assert pruned.value == 0.9
    assert pruned.further[0].name == "loss"
    assert not pruned.further[0].higher_is_better
    assert pruned.hardest[0] == (199, 1.0)
    assert len(stays.kept) == 4
    assert sum(short.kept) == 200 * round(4 * (1 - pruned.saving))  # so long that it costs as much
    assert pruned.beside == ("full", "infobatch", "infobatch-adaptive:noise=0.2,steps=stay", "full-shortened")
    assert full.environment["turns"] == "a whole run each"
    assert full.environment["command"].startswith("infobatch compare my_train.py:train")
    place = Path("runs/my_train-train/infobatch/seed-0")
    assert "trained by infobatch with seed 0" in (place / OUTPUT).read_text()
    assert (place / "own").is_dir()
    assert read_results([Path("runs/my_train-train")]).margin == 0.02
    ours = comparison("train", ["full"], [0])
    assert ours.changed_since() == []
    script.write_text(SCRIPT + "\nCHANGED = True\n")
    assert [run.method for run in ours.changed_since()] == ["full"]


@pytest.mark.slow
def test_a_crash_loses_one_run_and_the_end_says_which(script):
    shown = []
    failures = comparison("fails_once", seeds=(1, 2)).run(failed=shown.append)
    assert [(f.method, f.seed) for f in failures] == [("infobatch", 1), ("infobatch", 2)]
    assert failures == shown
    assert failures[0].reason == "OSError: the disk is full"
    assert "about to fail" in failures[0].tail
    assert "Traceback" in failures[0].tail
    assert "ended by SIGKILL (out of memory?)" in failures[1].reason
    assert record("full", 1, "fails_once").beside == ("full",)  # the other did not run beside it
    # 0.5 % of the first value on full data.
    assert json.loads(Path("runs/my_train-fails_once", MARGIN).read_text()) == {"margin": 0.0046}

    Path("mended").touch()
    before = Path("runs/my_train-fails_once/full/seed-1", RECORD).stat().st_mtime_ns
    again = comparison("fails_once", seeds=(1, 2))
    assert again.run() == []
    assert Path("runs/my_train-fails_once/full/seed-1", RECORD).stat().st_mtime_ns == before
    assert record("infobatch", 1, "fails_once").beside == ("infobatch",)
    assert len(again.results().methods[1].pairs) == 2


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_ends_its_process_and_starts_again_with_its_folder(script, number):
    first = command("compare", "my_train.py:slow", "--methods", "infobatch", "--seeds", 1)
    deadline = time.monotonic() + 120
    while not Path("waiting").exists() or not Path("waiting").read_text():
        assert time.monotonic() < deadline
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    run = int(Path("waiting").read_text())
    first.send_signal(number)
    _, err = first.communicate(timeout=60)
    assert first.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
    if number == signal.SIGINT:
        assert "Stopped. Run the same command to continue" in err
    while alive(run):
        assert time.monotonic() < deadline, "the run's process goes on without its parent"
        time.sleep(0.05)

    Path("go").touch()
    assert comparison("slow", ["infobatch"], [0]).run() == []
    output = Path("runs/my_train-slow/infobatch/seed-0", OUTPUT).read_text()
    assert output.splitlines() == ["begins with epoch 0", "begins with epoch 2"]
    outcome = record("infobatch", 0, "slow")
    assert len(outcome.times) == len(outcome.noise) == 4
    assert outcome.kept[0] == 200 > outcome.kept[1]
    assert outcome.most_pruned == ()  # who was left out before the interruption is not known


def alive(process):
    status = Path(f"/proc/{process}/status")
    return status.exists() and "Z (zombie)" not in status.read_text()


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["my_train.py"], "names no function: write FILE.py:FUNCTION"),
        (["my_train.py:not a name"], "names no function"),
        (["nowhere.py:train"], "there is no file nowhere.py"),
        (["my_train.py:train", "--methods", "full,inforbatch"], "there is no 'inforbatch'; did you mean 'infobatch'"),
        (["my_train.py:train", "--methods", "full,full"], "methods must name at least one method, and each once"),
        (["my_train.py:train", "--set", "epochs=3"], "a function has its own settings"),
        (["demo", "--metric", "accuracy"], "are for your own function"),
    ],
)
def test_what_cannot_be_run_is_told_before_anything_runs(script, arguments, message):
    done = CliRunner().invoke(app, ["compare", *arguments], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert message in " ".join(done.output.replace("│", " ").split())
    assert not list(Path().rglob(RECORD))


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("infobatch:ratio=1.5", "ratio"),
        ("infobatch:noise=0.1", "has no option 'noise'"),
        ("static-herding:fraction=0.5", "static methods select by teachers"),
        ("full:cost=0.5,lr=0.1", "the learning rate is the function's own"),
        ("kakurenbo", "needs new scores of the samples left out"),
        ("full-shortened", "full-shortened needs a pruning method beside it"),
    ],
)
def test_methods_that_a_function_cannot_be_compared_by_are_refused_before(method, message):
    with pytest.raises((TypeError, ValueError), match=message):
        check_methods([MethodSpec.parse(method)])


@pytest.mark.slow
def test_a_function_that_is_not_there_ends_the_comparison_at_once(script):
    with pytest.raises(RuntimeError, match=r"has no function 'trian'; did you mean 'train'\?"):
        comparison("trian").run()
    assert len(list(Path().rglob(OUTPUT))) == 1


def test_a_folder_of_another_function_is_refused(script):
    ours = comparison("train", ["full"], [0], metric="accuracy")
    ours._claim_folder(ours.recipe, {})
    other = comparison("fails_once", ["full"], [0])
    with pytest.raises(ValueError, match=r"'my_train.py:train' there, 'my_train.py:fails_once' here"):
        OwnComparison(other.function, other.methods, other.seeds, ours.folder).run()


def test_a_margin_is_settled_by_the_first_run_on_full_data_unless_it_was_said(script):
    place = Path("runs/my_train-train/full/seed-0")
    place.mkdir(parents=True)
    record = RunRecord("full", 0, "metric", True, 4, (4,), (0.5,), (1.0,), (91.23,), 0.0)
    (place / RECORD).write_text(record.to_json())
    [method] = comparison("train", ["full"]).methods
    comparison("train", ["full"], margin=0.3)._settle_margin(method, 0)
    assert not Path("runs/my_train-train", MARGIN).exists()
    comparison("train", ["full"])._settle_margin(method, 0)
    assert read_results([Path("runs")]).margin == 0.46
    with pytest.raises(ValueError, match="margin must be a number from 0 on, in the unit of the metric, got -1"):
        comparison("train", ["full"], margin=-1).run()


def at_top_level(trial):
    return 1.0


def test_a_function_that_a_new_process_cannot_import_is_refused():
    def within(trial):
        return 1.0

    for function in (lambda trial: 1.0, within, str.upper, 3):
        with pytest.raises(ValueError, match="at the top level of a file"):
            infobatch.compare(function)
    notebook = type(at_top_level)(at_top_level.__code__, {"__name__": "nowhere"}, "train")
    notebook.__module__ = "nowhere"
    with pytest.raises(ValueError, match=r"not in a file, as in a notebook: save it in one"):
        infobatch.compare(notebook)
    assert OwnFunction.of(at_top_level).name == "at_top_level"


CALL = """
import infobatch
if {guard}:
    results = infobatch.compare(train, methods=["infobatch:ratio=0.3"], seeds=[4], metric="accuracy", lower=["loss"])
    print(results.methods[0].runs[0].seed, results.methods[0].runs[0].value)
"""


@pytest.mark.slow
def test_compare_in_a_script(script):
    script.write_text(SCRIPT + CALL.format(guard='__name__ == "__main__"'))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "infobatch:ratio=0.3 seed 4  epoch   4/4" in done.stdout
    assert "accuracy, my_train.py:train" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("4 0.94")


@pytest.mark.slow
def test_compare_in_a_script_without_a_guard_does_not_start_runs_without_end(script):
    script.write_text(SCRIPT + CALL.format(guard=True))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert 'put it below if __name__ == "__main__":' in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_without_rich_it_says_what_to_install():
    code = "import sys; sys.modules['rich'] = None; import infobatch; infobatch.compare"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert 'needs rich, which is not installed: pip install "infobatch[lab]"' in done.stderr.splitlines()[-1]


# -- what comes of a run, in this process ------------------------------------------------------------------------------


def job(tmp_path, method="infobatch", metric=None, lower=()):
    return child.Job(
        file="my_train.py", module=None, function="train", method=method, seed=3, place=str(tmp_path), cost=None,
        metric=metric, higher_is_better=True, lower=lower, recipe={}, command="infobatch compare", path=[],
    )  # fmt: skip


def trained(trial, epochs=None, data=range(100), result=1.0, **defaults):
    train_data = trial.prune(data, 4, **defaults)
    loader = trial.loader(train_data, 10)
    for _ in range(train_data.num_epochs if epochs is None else epochs):
        for x in loader:
            train_data.update(x.float())
    return result


def prunes_twice(trial):
    trained(trial)
    trial.prune(range(10), 4)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda trial: 1.0, "has not called trial.prune()"),
        (lambda trial: trial.prune(range(10), 4) and 1.0, "has never called update()"),
        (prunes_twice, "trial.prune() must be called once per run, and was called twice"),
        (lambda trial: trained(trial, result=None), "has returned nothing: return the metric"),
        (lambda trial: trained(trial, result="good"), "must return the metric, a number, or a dict of numbers, got"),
        (lambda trial: trained(trial, result={"a": 1, "b": 2}), "has returned 2 numbers (a, b): name the one that"),
        (lambda trial: trained(trial, epochs=2), "trained 2 epochs, and must train 4: loop over range(train_data"),
        (lambda trial: trained(trial, epochs=5), "trained 5 epochs, and must train 4"),
        (lambda trial: trained(trial, seed=1), "prune() must not be given seed"),
        (lambda trial: trained(trial, ration=0.5), "prune() got 'ration', which is no argument of InfoBatch; did you"),
    ],
)  # fmt: skip
def test_a_function_that_does_something_else_is_told(tmp_path, function, message):
    with pytest.raises((child.RefusedError, RuntimeError, TypeError)) as error:
        child.run(function, job(tmp_path), "")
    assert message in str(error.value)


def test_the_metric_must_be_among_what_is_returned(tmp_path):
    with pytest.raises(child.RefusedError, match="no number named 'accurracy'; did you mean 'accuracy'"):
        child.run(lambda t: trained(t, result={"accuracy": 1.0}), job(tmp_path, metric="accurracy"), "")


def test_a_shortened_schedule_trains_fewer_epochs_or_is_refused(tmp_path):
    outcome = child.run(trained, job(tmp_path, "full:cost=0.5"), "")
    assert outcome.kept == (100, 100)
    with pytest.raises(child.RefusedError, match=r"and must train 2 \(method 'full:cost=0.5' trains 2"):
        child.run(lambda trial: trained(trial, epochs=4), job(tmp_path, "full:cost=0.5"), "")


def test_steps_are_those_that_the_method_says_or_the_run_is_refused(tmp_path):
    assert child.run(trained, job(tmp_path, "infobatch:steps=stay"), "").kept[1] < 100

    def own_loader(trial):
        train_data = trial.prune(range(100), 4)
        loader = DataLoader(train_data, batch_size=10, sampler=train_data.sampler)
        for _ in range(4):
            for x in loader:
                train_data.update(x.float())
        return 1.0

    with pytest.raises(child.RefusedError, match="says steps=stay, but the function's loader does not have as many"):
        child.run(own_loader, job(tmp_path / "other", "infobatch:steps=stay"), "")


def test_what_is_not_a_number_is_recorded_as_diverged(tmp_path):
    outcome = child.run(lambda trial: trained(trial, result=float("nan")), job(tmp_path), "")
    assert str(outcome.value) == "nan"


def test_options_of_the_method_win_and_what_it_does_not_know_is_left_out(tmp_path):
    seen = {}

    def noted(trial):
        seen["data"] = trial.prune(range(100), 4, ratio=0.3, delta=0.5, index_key=None)
        trial.train_data = None  # to look at another
        return trained(trial)

    for method, ratio in (("infobatch:ratio=0.7", 0.7), ("infobatch", 0.3), ("full", None)):
        child.run(noted, job(tmp_path / method, method), "")
        assert getattr(seen["data"].method, "ratio", None) == ratio
    child.run(noted, job(tmp_path / "adaptive", "infobatch-adaptive"), "")  # has no ratio and does not anneal


@pytest.mark.parametrize("stay", [False, True])  # Lightning comes back to the epoch that was complete, to end it
def test_epochs_before_an_interruption_keep_their_seconds(tmp_path, stay):
    states = []

    def interrupted(trial):
        trained(trial, epochs=2)
        states.append(trial.train_data.state_dict())
        raise OSError("interrupted")

    def goes_on(trial):
        train_data = trial.prune(range(100), 4)
        train_data.load_state_dict(states[0], stay=stay)
        train_data.set_epoch(1 if stay else 2)
        loader = trial.loader(train_data, 10)
        for epoch in (2, 3):
            train_data.set_epoch(epoch)
            for x in loader:
                train_data.update(x.float())
        return 1.0

    with pytest.raises(OSError, match="interrupted"):
        child.run(interrupted, job(tmp_path), "")
    notes = [{**json.loads(line), "seconds": 99.0} for line in (tmp_path / EPOCHS).read_text().splitlines()]
    (tmp_path / EPOCHS).write_text("".join(json.dumps(row) + "\n" for row in notes) + '{"cut sho')
    outcome = child.run(goes_on, job(tmp_path), "")
    assert outcome.times[:2] == (99.0, 99.0)
    assert max(outcome.times[2:]) < 60
    assert len(outcome.kept) == 4
    assert set(Notes(tmp_path / EPOCHS).by_epoch) == {0, 1, 2, 3}  # nothing is lost behind the line that was cut short


def test_records_make_a_table_and_a_page(tmp_path):
    records = [
        child.run(trained, replace(job(tmp_path / f"{method}-{seed}", method), seed=seed, recipe={"function": "f"}), "")
        for method in ("full", "infobatch")
        for seed in (0, 1, 2)
    ]
    results = Results.of([replace(record, beside=("full", "infobatch")) for record in records], 0.1)
    page.write(results, tmp_path / "page.html")
    assert "lossless within 0.1" in (tmp_path / "page.html").read_text()
    console = Console(record=True, width=100)
    tell(results, console)
    text = console.export_text()
    assert "metric, f, margin 0.1" in text
    export.table(results, tmp_path / "page.csv")
    export.figure(results, tmp_path / "page.png")
    assert "infobatch" in (tmp_path / "page.csv").read_text()


def test_a_state_from_elsewhere_is_told(tmp_path):
    states = []

    def keeps(trial):
        result = trained(trial)
        states.append(trial.train_data.state_dict())
        return result

    def goes_on(trial):
        train_data = trial.prune(range(100), 4)
        train_data.load_state_dict(states[0])
        return 1.0

    child.run(keeps, job(tmp_path / "one"), "")
    with pytest.raises(child.RefusedError, match=r"epoch \d was not trained in this run"):
        child.run(goes_on, job(tmp_path / "two"), "")
    assert not (tmp_path / "two" / EPOCHS).exists()
