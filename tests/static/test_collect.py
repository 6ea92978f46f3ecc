"""One pass of a real model over real data; whatever would book a row to the wrong sample is refused."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset

from infobatch.lab.data import fashion
from infobatch.static import Collected, Dynamics, collect, deepfool

N = 70


@pytest.fixture(scope="module")
def data() -> TensorDataset:
    split = fashion.load().train.head(N)
    images = torch.from_numpy(split.images).float()[:, None] / 255
    return TensorDataset(images, torch.from_numpy(split.labels).long())


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(324, 10)
    )


def test_arrays_are_what_the_model_makes_of_each_sample(model: nn.Module, data: TensorDataset) -> None:
    model[1].eval()  # as one would freeze it: that mode too must come back
    modes = [module.training for module in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    found = collect(model, DataLoader(data, batch_size=16))
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert not model[-1]._forward_hooks

    images, labels = data.tensors
    model.eval()
    with torch.no_grad():
        features = model[:-1](images)
        np.testing.assert_allclose(found.features, features.numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.logits, model(images).numpy(), rtol=1e-5, atol=1e-6)
    assert found.labels.tolist() == labels.tolist()
    assert found.bias
    assert found.correct is None
    assert found.distances is None


def test_deepfool_and_dynamics_go_along(model: nn.Module, data: TensorDataset) -> None:
    dynamics = Dynamics(N)
    dynamics.update(torch.arange(N), torch.zeros(N, 10), data.tensors[1])
    found = collect(model, DataLoader(data, batch_size=35), deepfool=True, dynamics=dynamics)
    np.testing.assert_allclose(found.distances, deepfool(model.eval(), data.tensors[0]).numpy(), rtol=1e-3)
    assert found.correct.tolist() == dynamics.correct.tolist()


def test_workers_half_precision_and_a_layer_without_bias(data: TensorDataset) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10, bias=False)).bfloat16()
    images, labels = data.tensors
    found = collect(model, DataLoader(TensorDataset(images.bfloat16(), labels), batch_size=32, num_workers=1))
    assert found.features.dtype == np.float32
    assert not found.bias
    assert len(found) == N


class Named(nn.Module):
    """Takes keywords and returns an object, as Hugging Face models do."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(784, 10)
        self.unused = nn.Linear(2, 2)

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> Any:
        return SimpleNamespace(logits=self.classifier(pixel_values.flatten(1)), loss=None)


def test_batches_by_name_and_a_layer_by_name(data: TensorDataset) -> None:
    images, labels = data.tensors
    batches = [{"pixel_values": images[i : i + 30], "labels": labels[i : i + 30]} for i in range(0, N, 30)]
    model = Named()
    with pytest.raises(ValueError, match=r"layer must be the last layer.*ran 0 times.*layer=model"):
        collect(model, batches)
    found = collect(model, batches, layer=model.classifier)
    assert found.labels.tolist() == labels.tolist()


def test_any_other_batch_by_a_function_of_the_users(model: nn.Module, data: TensorDataset) -> None:
    batches = [SimpleNamespace(image=data.tensors[0], label=data.tensors[1])]
    with pytest.raises(TypeError, match=r"batch must be.*SimpleNamespace.*forward="):
        collect(model, batches)
    found = collect(model, batches, forward=lambda model, batch: (model(batch.image), batch.label))
    assert len(found) == N


def test_a_loader_that_does_not_go_in_order_is_refused(model: nn.Module, data: TensorDataset) -> None:
    refused = {
        "RandomSampler": DataLoader(data, batch_size=16, shuffle=True),
        "RandomSampler ": DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 16, False)),
        "list": DataLoader(data, batch_sampler=[[3, 1], [2, 0]]),
        "SequentialSampler and in_order=False": DataLoader(data, batch_size=16, num_workers=1, in_order=False),
    }
    for named, loader in refused.items():
        with pytest.raises(ValueError, match=f"loader must go through the dataset in its order.*{named.strip()}"):
            collect(model, loader)
    explicit = DataLoader(data, batch_sampler=BatchSampler(SequentialSampler(data), 16, False))
    assert len(collect(model, explicit)) == N


def test_missing_samples_are_noticed(model: nn.Module, data: TensorDataset) -> None:
    with pytest.raises(ValueError, match=r"loader gave 64 of the dataset's 70 samples.*drop_last=False"):
        collect(model, DataLoader(data, batch_size=16, drop_last=True))
    with pytest.raises(ValueError, match="loader is empty"):
        collect(model, [])


def test_a_model_without_a_last_linear_layer_says_so(data: TensorDataset) -> None:
    with pytest.raises(ValueError, match=r"Sequential has no torch\.nn\.Linear"):
        collect(nn.Sequential(nn.Flatten()), DataLoader(data))
    scaled = nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.LogSoftmax(1))
    with pytest.raises(ValueError, match="layer must be the last layer"):
        collect(scaled, DataLoader(data, batch_size=16))


def test_the_model_is_put_back_after_an_error(model: nn.Module) -> None:
    def broken() -> Iterator[Any]:
        raise RuntimeError("the disk is gone")
        yield

    with pytest.raises(RuntimeError, match="the disk is gone"):
        collect(model, broken())
    assert model.training
    assert not model[-1]._forward_hooks


def test_progress_wraps_the_loader_and_a_bar_needs_a_terminal(
    model: nn.Module, data: TensorDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader, seen = DataLoader(data, batch_size=16), []

    def counted(batches: Any) -> Iterator[Any]:
        for batch in batches:
            seen.append(len(batch[0]))
            yield batch

    collect(model, loader, progress=counted)
    assert seen == [16, 16, 16, 16, 6]

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for shown, stream in ((True, Terminal()), (False, Terminal()), (True, io.StringIO())):
        monkeypatch.setattr(sys, "stderr", stream)
        found = collect(model, loader, progress=shown)
        assert isinstance(found, Collected)
        assert ("collecting" in stream.getvalue()) == (shown and stream.isatty())
