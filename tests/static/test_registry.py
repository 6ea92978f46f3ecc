"""Every method by name: one contract for all, and on to InfoBatch."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import infobatch
from infobatch import static
from infobatch.lab.data import fashion

N, HELD_OUT = 240, 60
WEIGHTED = {"craig"}
DRAWN = {"random", "cd", "k-center", "dq", "forgetting"}  # chance has a say: where to start, what to draw, ties


@pytest.fixture(scope="module")
def everything() -> tuple[TensorDataset, static.Collected, static.Collected]:
    """A small network, trained a little on real images, and all that can be collected from it."""
    torch.manual_seed(0)
    split = fashion.load().train.head(N + HELD_OUT)
    images = torch.from_numpy(split.images).float().flatten(1) / 255
    labels = torch.from_numpy(split.labels).long()
    data = TensorDataset(images[:N], labels[:N])
    model = nn.Sequential(nn.Linear(784, 12), nn.ReLU(), nn.Linear(12, 10))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    dynamics = static.Dynamics(N)
    for epoch in range(4):
        for index in torch.randperm(N, generator=torch.Generator().manual_seed(epoch)).split(40):
            logits = model(images[index])
            dynamics.update(index, logits, labels[index])
            optimizer.zero_grad()
            nn.functional.cross_entropy(logits, labels[index]).backward()
            optimizer.step()
    collected = static.collect(model, DataLoader(data, batch_size=64), deepfool=True, dynamics=dynamics)
    held_out = static.collect(model, [(images[N:], labels[N:])])
    return data, collected, held_out


def options_of(name: str, held_out: static.Collected) -> dict[str, Any]:
    given: dict[str, Any] = {"validation": held_out} if "validation" in static.info(name).options else {}
    return given | ({"bins": 3} if name == "dq" else {"directions": 8} if name == "dp" else {})


def test_the_list_is_the_papers() -> None:
    names = ["random", "cd", "herding", "k-center", "least-confidence", "margin", "forgetting", "grand", "deepfool"]
    names += ["craig", "graph-cut", "glister", "influence", "el2n", "dp", "dq"]
    assert static.list() == sorted(names)


@pytest.mark.parametrize("name", static.list())
def test_every_method_selects(name: str, everything: Any) -> None:
    _, data, held_out = everything
    options = options_of(name, held_out)
    for size, balanced in ((0.3, False), (50, True), (1.0, False)):
        found = static.select(name, data, size, balanced=balanced, **options)
        count = size if isinstance(size, int) else round(size * N)
        assert found.indices.dtype == np.int64
        assert len(found) == len(found.weights) == count
        assert (np.diff(found.indices) > 0).all()
        assert found.indices[0] >= 0
        assert found.indices[-1] < N
        assert found.weights.sum() == (N if name in WEIGHTED else count)
        if balanced:
            kept, all_of = (np.bincount(labels, minlength=10) for labels in (data.labels[found.indices], data.labels))
            assert (np.abs(kept - count * all_of / N) < 1).all()


@pytest.mark.parametrize("name", static.list())
def test_a_selection_depends_on_the_seed_and_nothing_else(name: str, everything: Any) -> None:
    _, data, held_out = everything
    options = options_of(name, held_out)
    torch.manual_seed(1)
    np_state = np.random.get_state()[1].copy()  # noqa: NPY002 (that nobody touches it is what is tested)
    torch_state = torch.get_rng_state()
    first, again, other = (static.select(name, data, 0.2, seed=seed, **options).indices.tolist() for seed in (3, 3, 4))
    assert first == again
    if name in DRAWN:
        assert first != other
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.testing.assert_array_equal(np.random.get_state()[1], np_state)  # noqa: NPY002


@pytest.mark.parametrize("name", static.list())
def test_a_method_needs_what_its_card_says_and_says_so(name: str, everything: Any) -> None:
    _, data, held_out = everything
    info, options = static.info(name), options_of(name, held_out)
    arrays = [field.name for field in fields(static.Collected) if field.name != "bias"]
    spare = {array: None for array in arrays if array not in info.needs}
    if info.needs:
        alone = static.select(name, replace(data, **spare), 0.2, **options)
        assert alone.indices.tolist() == static.select(name, data, 0.2, **options).indices.tolist()
    for missing in info.needs:
        other = next(array for array in arrays if array not in info.needs)
        with pytest.raises(ValueError, match=rf"^{name} needs .*(collect|Dynamics)"):
            static.select(name, replace(data, **{missing: None, other: getattr(data, other)}), 0.2, **options)


def test_scores_select_what_they_are_named_for(everything: Any) -> None:
    _, data, _ = everything
    likely = torch.softmax(torch.from_numpy(data.logits).double(), 1).numpy()
    confident = likely.max(1)

    def chosen(name: str) -> np.ndarray:
        return np.isin(np.arange(N), static.select(name, data, 0.25).indices)

    assert confident[chosen("least-confidence")].max() <= confident[~chosen("least-confidence")].min()
    assert data.distances[chosen("deepfool")].max() <= data.distances[~chosen("deepfool")].min()
    size = static.el2n(data.logits, data.labels)
    assert size[chosen("el2n")].min() >= size[~chosen("el2n")].max()
    never = (data.correct == 1).sum(0) == 0
    assert never.any()
    assert chosen("forgetting")[never].all() or never[chosen("forgetting")].all()


def test_scores_are_averaged_over_runs(everything: Any) -> None:
    _, data, held_out = everything
    shift = np.random.default_rng(0).normal(size=data.logits.shape).astype(np.float32)
    other = replace(data, logits=data.logits + shift)
    mean = (static.el2n(data.logits, data.labels) + static.el2n(other.logits, data.labels)) / 2
    found = static.select("el2n", (run for run in (data, other)), 30)
    assert found.indices.tolist() == sorted(np.argsort(-mean)[:30].tolist())
    assert len(static.select("grand", [data, other], 30, balanced=True)) == 30
    for name in ("k-center", "dp", "influence"):
        with pytest.raises(ValueError, match=f"{name} takes one run"):
            static.select(name, [data, other], 30, **options_of(name, held_out))
    with pytest.raises(ValueError, match="same samples, got sizes"):
        static.select("el2n", [data, held_out], 30)


def test_gradients_or_features_by_choice(everything: Any) -> None:
    _, data, _ = everything
    for name in ("craig", "graph-cut"):
        picked = {on: static.select(name, data, 0.2, on=on).indices.tolist() for on in ("features", "gradients")}
        assert picked["features"] != picked["gradients"]
    own, _ = static.craig(data.features, 48, errors=data.errors("craig"), bias=data.bias)
    assert sorted(own.tolist()) == static.select("craig", data, 0.2).indices.tolist()
    with pytest.raises(ValueError, match=r'on must be "features" or "gradients", got \'inputs\''):
        static.select("craig", data, 0.2, on="inputs")


@pytest.mark.parametrize(
    ("name", "options", "error", "text"),
    [
        ("k-centre", {}, ValueError, "static method: there is no 'k-centre'; did you mean 'k-center'"),
        ("craig", {"epsilom": 0.1}, TypeError, "craig has no option 'epsilom'; did you mean 'epsilon'"),
        ("margin", {"count": 3}, TypeError, "margin has no option 'count'; it has none"),
        ("glister", {}, TypeError, r"glister needs validation.*got None.*static\.collect\(model, validation_loader\)"),
        ("influence", {"validation": 3}, TypeError, "influence needs validation.*got 3"),
    ],
)
def test_wrong_calls_say_what_is_right(
    name: str, options: dict[str, Any], error: type[Exception], text: str, everything: Any
) -> None:
    with pytest.raises(error, match=text):
        static.select(name, everything[1], 0.5, **options)


def two_classes(seed: int, few: int = 3, many: int = 37) -> static.Collected:
    rng = np.random.default_rng(seed)
    labels = np.repeat([1, 0], [few, many])
    return static.Collected(features=rng.normal(size=(few + many, 4)), logits=rng.normal(size=(40, 2)), labels=labels)


@pytest.mark.parametrize("name", ["herding", "k-center", "graph-cut", "craig", "random", "cd"])
def test_a_class_is_selected_from_as_if_it_were_alone(name: str) -> None:
    """Also where it is the only one that gets picks: the oracle sees that class and nothing else."""
    for seed in range(20):
        data = two_classes(seed)
        members = np.flatnonzero(data.labels == 0)
        with pytest.warns(RuntimeWarning, match=r"selects 1 samples of 2 classes, and none of class 1: .* at least 2"):
            found = static.select(name, data, 1, balanced=True, seed=seed)
        own = int(np.random.SeedSequence([seed, 0]).generate_state(1)[0])
        alone = static.select(name, data.take(members), 1, seed=own)
        assert found.indices.tolist() == members[alone.indices].tolist()
        assert found.weights.tolist() == alone.weights.tolist()
        assert found.weights.sum() == (37 if name in WEIGHTED else 1)


@pytest.mark.parametrize("name", ["herding", "k-center", "craig", "el2n", "dp"])
def test_a_small_class_does_not_vanish(name: str) -> None:
    for seed in range(20):
        data = two_classes(seed)
        found = static.select(name, data, 4, balanced=True, seed=seed)
        assert np.bincount(data.labels[found.indices]).tolist() == [3, 1]
        if name in WEIGHTED:
            assert found.weights.sum() == 40
            assert found.weights[data.labels[found.indices] == 1].tolist() == [3]


def test_classes_without_a_pick_are_named_but_not_all_of_very_many() -> None:
    data = static.Collected(labels=np.arange(30))
    with pytest.warns(RuntimeWarning, match=r"of class \d+, (\d+, ){8}\d+ and 15 more: "):
        assert len(static.select("random", data, 5, balanced=True)) == 5


def test_classes_are_needed_to_balance() -> None:
    with pytest.raises(ValueError, match="balanced=True needs labels"):
        static.select("random", static.Collected(features=np.zeros((5, 2))), 2, balanced=True)


def test_a_selection_goes_straight_into_infobatch(everything: Any, tmp_path: Path) -> None:
    """Table 9: dataset quantization first, InfoBatch on what it left."""
    data, collected, _ = everything
    static.select("dq", collected, 0.5, seed=1).save(tmp_path / "chosen.npz")
    chosen = static.Selection.load(tmp_path / "chosen.npz")
    train_data = infobatch.InfoBatch(chosen.subset(data), 4, seed=0)
    loader = DataLoader(train_data, batch_size=16, sampler=train_data.sampler)
    torch.manual_seed(0)
    model = nn.Linear(784, 10)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    seen = 0
    for _ in range(4):
        for x, y in loader:
            loss = train_data.update(nn.functional.cross_entropy(model(x), y, reduction="none"))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(x)
    assert len(train_data) == N // 2
    assert seen < 4 * N // 2
    assert np.isfinite(train_data.scores).all()
