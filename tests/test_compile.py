"""update() as tensor work: inside torch.compile, in every precision, with the caller's tensor left alone."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
import torch._inductor.config
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.data import DataLoader, TensorDataset

from infobatch import InfoBatch

SIZE, BATCH, EPOCHS = 50, 8, 6  # a last batch of 2; delta 0.7: epochs 1 … 4 are pruned
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Model:
    """Losses with a gradient: weight · feature, in the wanted precision."""

    def __init__(self, dtype, size=SIZE):
        self.features = torch.rand(size, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.1
        self.weight = torch.ones((), dtype=torch.float64, requires_grad=True)
        self.dtype = dtype

    def __call__(self, samples):
        return (self.weight * self.features[samples]).to(self.dtype)


def train(dtype, compiler=None, guard=nullcontext, size=SIZE, drop_last=False, **options):
    """(results, InfoBatch, compilations after each epoch) of a run with an explicit index."""
    train_data = InfoBatch(TensorDataset(torch.arange(size)), EPOCHS, delta=0.7, index_key="index", **options)
    loader = DataLoader(train_data, BATCH, sampler=train_data.sampler, drop_last=drop_last)
    model = Model(dtype, size)

    def step(samples, index):
        return train_data.update(model(samples), index)

    if compiler is not None:
        step = torch.compile(step, fullgraph=True, backend=compiler)  # a graph break would raise
    results, compilations = [], []
    for epoch in range(EPOCHS):
        train_data.set_epoch(epoch)
        for i, (samples, index) in enumerate(loader):
            with nullcontext() if i == 0 and epoch < 2 else guard():
                loss = step(samples, index)
            model.weight.grad = None
            loss.backward()
            results.append((loss.item(), model.weight.grad.item(), loss.dtype))
        compilations.append(getattr(compiler, "frame_count", 0))
    return results, train_data, compilations


@pytest.mark.parametrize(
    ("dtype", "labels"),
    [(torch.bfloat16, 1), (torch.float32, 1), (torch.float64, 1), (torch.float32, 140)],
    ids=["bfloat16", "float32", "float64", "more weights than codes"],
)
def test_compiled_training_is_eager_training(dtype, labels):
    size = 6 * labels if labels > 1 else SIZE
    options = {"size": size, "strata": np.arange(size) % labels}
    eager, eager_data, _ = train(dtype, **options)
    compiled, compiled_data, compilations = train(dtype, CompileCounterWithBackend("aot_eager"), **options)
    assert compiled == eager
    assert np.array_equal(compiled_data.scores, eager_data.scores)
    assert compiled_data.stats.epochs == eager_data.stats.epochs
    assert eager_data.stats.saved > 0
    # full and pruned epochs, whole and short batches: once each has been seen, nothing is compiled any more
    assert compilations[-1] == compilations[1] <= 7


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")  # torch's own
def test_compiled_for_real():
    eager, eager_data, _ = train(torch.float32, drop_last=True)
    with torch._inductor.config.patch(compile_threads=1):
        compiled, compiled_data, _ = train(torch.float32, "inductor", drop_last=True)
    np.testing.assert_allclose([r[:2] for r in compiled], [r[:2] for r in eager], rtol=1e-6)
    np.testing.assert_allclose(compiled_data.scores, eager_data.scores, rtol=1e-6)
    assert compiled_data.stats.epochs == eager_data.stats.epochs


def test_no_step_recompiles():
    """Once the first full and the first pruned step are compiled, all others run as they are."""

    def guard():
        return torch._dynamo.config.patch(error_on_recompile=True)

    _, train_data, compilations = train(torch.float32, CompileCounterWithBackend("aot_eager"), guard, drop_last=True)
    assert compilations[0] < compilations[1] == compilations[-1]
    assert train_data.stats.saved > 0


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch looks, where the graph breaks
def test_methods_that_choose_within_batches_update_outside_of_the_graph():
    def train(compiled):
        options = {"method": "selective-backprop", "start": 0.0, "end": 1.0}
        train_data = InfoBatch(TensorDataset(torch.arange(SIZE)), EPOCHS, index_key="index", **options)
        loader = DataLoader(train_data, BATCH, sampler=train_data.sampler)
        model = Model(torch.float32)

        def step(samples, index):
            return train_data.update(model(samples), index)

        step = torch.compile(step, backend="eager", dynamic=True) if compiled else step
        found = []
        for epoch in range(3):
            train_data.set_epoch(epoch)
            for samples, index in loader:
                chosen = torch.arange(len(index))
                if train_data.chooses:
                    chosen = train_data.choose(model(samples).detach(), index)
                found.append(step(samples[chosen], index[chosen]).item())
        return found, train_data.scores.tolist(), train_data.stats.epochs

    assert train(compiled=True) == train(compiled=False)


def test_torch_2_6_whose_disable_takes_no_reason(monkeypatch):
    expected, *_ = train(torch.float32)
    disable = torch.compiler.disable
    monkeypatch.setattr(torch.compiler, "disable", lambda fn=None, recursive=True: disable(fn, recursive))
    found, *_ = train(torch.float32)
    assert found == expected


def test_a_stray_index_in_compiled_code_raises_at_the_end_of_the_epoch():
    train_data = InfoBatch(range(10), num_epochs=4, delta=1.0, index_key="index")
    train_data.update(torch.arange(10.0), torch.arange(10))
    train_data.set_epoch(1)
    (pruned, *_) = sorted(set(range(10)) - set(train_data.plan.indices.tolist()))
    step = torch.compile(train_data.update, fullgraph=True, backend="aot_eager")
    step(torch.ones(1), torch.tensor([pruned]))
    with pytest.raises(RuntimeError, match="1 losses of the last epoch were for samples outside its plan"):
        train_data.set_epoch(2)


def test_losses_that_are_not_finite_are_counted_in_compiled_code():
    train_data = InfoBatch(range(3), num_epochs=4, index_key="index")
    step = torch.compile(train_data.update, fullgraph=True, backend="aot_eager")
    step(torch.tensor([1.0, torch.nan, torch.inf]), torch.arange(3))
    assert train_data.stats.rejected == 2
    assert train_data.scores.tolist()[0] == 1
    assert np.isnan(train_data.scores[1:]).all()


# -- precision ---------------------------------------------------------------------------------------------------


def pruned_epoch(batch, by_index):
    """An InfoBatch in an epoch with weights 1 and 5/3, a loader on it, and a call of update() for a batch."""
    train_data = InfoBatch(TensorDataset(torch.arange(8)), 4, index_key="index" if by_index else None)
    train_data.update(torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 5, 6, 7]), torch.arange(8))
    train_data.set_epoch(1)
    assert set(train_data.plan.weights.tolist()) == {1, 5 / 3}
    loader = DataLoader(train_data, batch, sampler=train_data.sampler)
    return train_data, loader


each_form = pytest.mark.parametrize("by_index", [False, True], ids=["by position", "by index"])
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@each_form
@each_dtype
def test_value_and_gradient_in_every_precision(dtype, by_index):
    train_data, loader = pruned_epoch(4, by_index)
    for step, (samples, *index) in enumerate(loader):
        loss = (torch.rand(len(samples), dtype=torch.float64) + 0.5).to(dtype).requires_grad_()
        mean = train_data.update(loss, *index)
        mean.backward()
        planned = slice(4 * step, 4 * step + 4)
        assert train_data.plan.indices[planned].tolist() == samples.tolist()
        weights = torch.from_numpy(train_data.plan.weights[planned].copy())
        expected = (loss.detach().double() * weights).mean()
        assert mean.dtype == loss.grad.dtype == dtype
        assert mean.dim() == 0
        tolerance = 4 * torch.finfo(dtype).eps
        torch.testing.assert_close(mean.detach().double(), expected, rtol=tolerance, atol=0)
        torch.testing.assert_close(loss.grad.double(), weights / len(samples), rtol=tolerance, atol=0)
        assert train_data.scores[samples].tolist() == loss.detach().float().tolist()


@each_form
def test_weights_of_float64_losses_are_not_rounded(by_index):
    train_data, loader = pruned_epoch(1, by_index)
    for samples, *index in loader:
        loss = torch.ones(1, dtype=torch.float64)
        (weight,) = train_data.plan.by_sample.of(samples.numpy())
        assert train_data.update(loss, *index).item() == weight


@each_form
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_sums_in_float32(dtype, by_index):
    """4,096 losses of 1 sum to 4,096 in float32; in bfloat16 the sum would stop at 256."""
    train_data = InfoBatch(TensorDataset(torch.arange(4096)), 4, index_key="index" if by_index else None)
    loader = DataLoader(train_data, 4096, sampler=train_data.sampler)
    for epoch in range(2):
        train_data.set_epoch(epoch)
        for samples, *index in loader:
            score = (samples.float() - 4000).clamp(min=0)  # most are learned
            mean = train_data.update(torch.ones(len(samples), dtype=dtype), *index, score=score)
            expected = train_data.plan.weights.mean()
            assert mean.item() == pytest.approx(expected, rel=torch.finfo(dtype).eps)
    assert len(train_data.plan) < 4096


@each_form
def test_the_score_replaces_the_loss_in_the_table_only(by_index):
    train_data, loader = pruned_epoch(3, by_index)
    for samples, *index in loader:
        loss = torch.full((len(samples),), 2.0)
        weights = torch.from_numpy(train_data.plan.by_sample.of(samples.numpy()))
        mean = train_data.update(loss, *index, score=samples + 100.0)
        assert mean.item() == pytest.approx((2 * weights).mean().item(), rel=1e-6)
        assert train_data.scores[samples].tolist() == (samples + 100.0).tolist()


# -- the caller's tensor -----------------------------------------------------------------------------------------


@each_form
@each_dtype
@pytest.mark.parametrize("ending", [torch.exp, torch.sqrt, torch.sigmoid, torch.nn.functional.relu, torch.tanh])
def test_losses_whose_backward_needs_their_output(ending, dtype, by_index):
    """Defect 7 of the official code: it edits the loss in place, and autograd fails."""
    train_data, loader = pruned_epoch(4, by_index)
    for samples, *index in loader:
        x = (samples + 1).to(dtype).div(10).requires_grad_()
        loss = ending(x)
        before, version = loss.detach().clone(), loss._version
        train_data.update(loss, *index).backward()
        assert torch.equal(loss, before)
        assert loss._version == version
        weights = torch.tensor(train_data.plan.by_sample.of(samples.numpy()))
        again = x.detach().clone().requires_grad_()
        (ending(again).double() * weights).mean().backward()
        torch.testing.assert_close(x.grad, again.grad, rtol=8 * torch.finfo(dtype).eps, atol=0)


@each_form
def test_losses_may_be_reused_after_the_update(by_index):
    """The table holds copies: what the caller does to the loss afterwards changes no score."""
    train_data, loader = pruned_epoch(4, by_index)
    for samples, *index in loader:
        loss = samples + 0.5
        train_data.update(loss, *index)
        loss.zero_()
        assert train_data.scores[samples].tolist() == (samples + 0.5).tolist()


@each_form
def test_without_gradients(by_index):
    train_data, loader = pruned_epoch(4, by_index)
    for samples, *index in loader:
        with torch.no_grad():
            assert not train_data.update(samples + 1.0, *index).requires_grad
    assert train_data.scores[train_data.plan.indices].tolist() == (train_data.plan.indices + 1.0).tolist()
