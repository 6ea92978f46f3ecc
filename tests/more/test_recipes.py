"""The recipes of docs/more-frameworks.md, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils.data import TensorDataset

pytestmark = pytest.mark.filterwarnings("ignore")  # the frameworks' own

PAGE = (Path(__file__).parents[2] / "docs" / "more-frameworks.md").read_text()
RECIPES = dict(re.findall(r"^## (\w+)\n.*?```python\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))
SIZE, EPOCHS = 211, 5


def run(name: str, folder: Path) -> dict[str, Any]:
    torch.manual_seed(0)
    x = torch.randn(SIZE, 5)
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 2))
    around: dict[str, Any] = {
        "data": TensorDataset(x, (x[:, 0] > 0).long()),
        "num_epochs": EPOCHS,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "folder": str(folder),
    }
    exec(compile(RECIPES[name], name, "exec"), around)
    return around


@pytest.mark.parametrize("name", ["Ignite", "mmengine", "skorch"])
def test_recipe(name: str, tmp_path: Path) -> None:
    around = run(name, tmp_path)
    train_data, x, y = around["train_data"], *around["data"].tensors
    epochs = train_data.stats.epochs
    assert [epoch.epoch for epoch in epochs] == list(range(EPOCHS))
    assert [epoch.seen for epoch in epochs] == [epoch.kept for epoch in epochs]
    assert train_data.stats.saving > 0.02
    net = around["net"].module_ if name == "skorch" else around["model"]
    with torch.no_grad():
        losses = F.cross_entropy(net(x), y, reduction="none").numpy()
    assert losses.mean() < 0.6
    assert np.corrcoef(losses, train_data.scores)[0, 1] > 0.9  # each score is its own sample's, a few steps old


def test_ignite_goes_on(tmp_path: Path) -> None:
    from ignite.handlers import Checkpoint

    around = run("Ignite", tmp_path)
    whole = [each.clone() for each in around["model"].parameters()]
    scores = around["train_data"].scores.copy()
    [file] = tmp_path.glob("checkpoint_21.pt")  # three epochs of seven steps
    Checkpoint.load_objects(around["state"], torch.load(file, weights_only=False))
    assert around["train_data"].epoch == 3
    around["trainer"].run(around["loader"], max_epochs=EPOCHS)
    np.testing.assert_array_equal(around["train_data"].scores, scores)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(around["model"].parameters(), whole, strict=True))


def test_mmengine_keeps_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")  # mmengine loads whole objects
    around = run("mmengine", tmp_path)
    scores = around["train_data"].scores.copy()
    around["runner"].load_checkpoint(str(tmp_path / "epoch_3.pth"))
    assert around["train_data"].epoch == 3
    assert len(around["train_data"].stats.epochs) == 3
    assert not np.array_equal(around["train_data"].scores, scores)
