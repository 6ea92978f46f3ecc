"""The methods that docs/methods.md shows are ones."""

import re
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from infobatch import InfoBatch, methods

PAGE = Path(__file__).parents[2] / "docs/methods.md"
CODE = "\n".join(block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "class " in block)


@pytest.fixture
def page(monkeypatch):
    monkeypatch.setattr(methods, "_REGISTRY", dict(methods._REGISTRY))
    names = {}
    exec(CODE, names)
    return names


@pytest.mark.parametrize("name", ["softened", "Fallen"])
def test_methods_of_the_page_train_and_resume(page, name):
    method = name if name in methods.list() else page[name]()
    train_data = InfoBatch(TensorDataset(torch.arange(40.0)), 6, method=method)
    loader = DataLoader(train_data, batch_size=8, sampler=train_data.sampler)
    for epoch in range(6):
        train_data.set_epoch(epoch)
        for (x,) in loader:
            train_data.update((x + 1) / (epoch * x % 7 + 1))
    assert 0.1 < train_data.stats.saving < 0.6
    again = InfoBatch(TensorDataset(torch.arange(40.0)), 6, method=method)
    again.load_state_dict(train_data.state_dict())
    assert again.scores.tolist() == train_data.scores.tolist()


def test_the_page_tells_of_every_method():
    cards = re.findall(r"^## (\S+)$", PAGE.read_text(), re.M)
    assert set(methods.list()) <= set(cards)
