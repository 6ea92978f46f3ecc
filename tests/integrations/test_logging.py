"""The figures of a run, read back from what the real loggers have written."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from distributed.launch import ROOT, python
from infobatch import InfoBatch, Stream
from infobatch.integrations.logging import log, metrics
from infobatch.lab.data import fashion

EPOCHS = 3
Curves = dict[str, dict[int, float]]


def train(*loggers: Any) -> Curves:
    """Train a small model and log after every epoch; returns what should be found."""
    split = fashion.load().train.head(100)
    images = torch.from_numpy(split.images).float().flatten(1) / 255
    train_data = InfoBatch(TensorDataset(images, torch.from_numpy(split.labels).long()), EPOCHS, delta=1.0)
    loader = DataLoader(train_data, 20, sampler=train_data.sampler)
    weight = torch.zeros(10, 784, requires_grad=True)
    curves: Curves = {f"infobatch/{name}": {} for name in ("kept_share", "saving", "mean_score", "loss", "noise")}
    kept, last = 0, {}
    for epoch in range(EPOCHS):
        for x, y in loader:
            loss = cross_entropy(x @ weight.T, y, reduction="none")
            (gradient,) = torch.autograd.grad(train_data.update(loss), weight)
            weight.data -= 0.05 * gradient
            done = train_data.position[0]
            batch = train_data.plan.indices[done - len(y) : done]
            last.update(zip(batch.tolist(), loss.tolist(), strict=True))
        kept += len(train_data.plan)
        curves["infobatch/kept_share"][epoch] = len(train_data.plan) / 100
        curves["infobatch/saving"][epoch] = (100 * (epoch + 1) - kept) / (100 * EPOCHS)
        curves["infobatch/mean_score"][epoch] = float(np.mean(list(last.values())))
        weights = torch.from_numpy(np.array(train_data.plan.by_sample.of(batch)))
        curves["infobatch/loss"][epoch] = float((loss.detach() * weights).sum() / weights.sum())
        losses = np.array([last.get(i, np.nan) for i in range(100)])
        curves["infobatch/noise"][epoch] = train_data.plan.by_sample.noise(losses)
        for logger in loggers:
            log(train_data, logger, epoch)
    assert kept < 100 * EPOCHS  # else the figures say nothing
    return curves


def assert_same(found: Curves, expected: Curves) -> None:
    assert found.keys() == expected.keys()
    for name, curve in expected.items():
        assert found[name] == pytest.approx(curve, rel=1e-6)


def from_tensorboard(folder: Path) -> Curves:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    return {name: {e.step: e.value for e in events.Scalars(name)} for name in events.Tags()["scalars"]}


def test_tensorboard(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        expected = train(writer)
    assert_same(from_tensorboard(tmp_path), expected)


def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    import wandb

    for name in ("CACHE", "CONFIG", "DATA", "ARTIFACT"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / name))
    run = wandb.init(mode="offline", dir=tmp_path, project="test", settings=wandb.Settings(console="off", silent=True))
    expected = train(run)
    run.finish()
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    patience = time.monotonic() + 60
    while len(wandb_history(path)) < EPOCHS and time.monotonic() < patience:
        time.sleep(0.1)  # W&B's own process writes the file, and on a busy machine is not done yet
    found: Curves = {}
    for items in wandb_history(path):
        for name in expected:
            found.setdefault(name, {})[items["_step"]] = items[name]
    assert_same(found, expected)


def wandb_history(path: Path) -> list[dict[str, Any]]:
    """What was logged at each step: W&B's file is a LevelDB log of protobuf records, in blocks of 32 KiB."""
    from wandb.proto import wandb_internal_pb2

    content, position, record, steps = path.read_bytes(), 7, b"", []
    while position + 7 <= len(content):
        if 32768 - position % 32768 < 7:  # no room for a header: the rest of the block is empty
            position += 32768 - position % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", content, position)
        record += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            message = wandb_internal_pb2.Record.FromString(record)
            record = b""
            if message.WhichOneof("record_type") == "history":
                steps.append({(i.key or i.nested_key[0]): json.loads(i.value_json) for i in message.history.item})
    return steps


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the skinny package has no other store of its own
    import mlflow

    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run() as run:
        expected = train(mlflow)
    client = mlflow.MlflowClient()
    found = {
        name: {m.step: m.value for m in client.get_metric_history(run.info.run_id, name)}
        for name in client.get_run(run.info.run_id).data.metrics
    }
    assert_same(found, expected)


def test_the_trackers_of_accelerate(tmp_path: Path) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, log_with="tensorboard", project_dir=tmp_path)
    accelerator.init_trackers("run")
    expected = train(accelerator)
    accelerator.end_training()
    assert_same(from_tensorboard(tmp_path / "run"), expected)


def test_before_training_there_is_no_mean_score() -> None:
    assert metrics(InfoBatch(range(10), EPOCHS)) == {"infobatch/kept_share": 1.0, "infobatch/saving": 0.0}


def test_something_else_is_no_logger() -> None:
    with pytest.raises(TypeError, match=r"logger must have add_scalar .*got \[\]: send metrics"):
        log(InfoBatch(range(10), EPOCHS), [], step=0)


def test_the_example_runs(tmp_path: Path) -> None:
    done = python(ROOT / "examples" / "logging_loop.py", "--epochs", 3, "--samples", 500, "--folder", tmp_path)
    curves = from_tensorboard(tmp_path)
    assert list(curves["infobatch/saving"]) == [0, 1, 2]
    assert f"saved {curves['infobatch/saving'][2]:.1%} of full training" in done.stdout


def test_a_stream_has_its_figures_too() -> None:
    stream = Stream(lambda: iter(range(600)), key=lambda number: number % 2, noise=0.5, every=2)
    assert metrics(stream) == {"infobatch/saving": 0.0}
    for number, ticket in DataLoader(stream, 20):
        stream.update(0.01 + number % 2 * 1.0, ticket)
    values = metrics(stream)
    assert values["infobatch/saving"] == stream.stats.saving > 0.1
    assert 1 < values["infobatch/noise"] < 1.6
    assert values["infobatch/loss"] == float(stream.loss)
