import json

import pytest

from infobatch.lab import recipes


@pytest.mark.parametrize(("name", "preset"), [(n, p) for n, presets in recipes.RECIPES.items() for p in presets])
def test_a_recipe_is_data(name, preset, tmp_path):
    recipe = recipes.get(name, preset)
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(recipe.as_data()))
    assert recipes.get(str(path)) == recipe


def test_settings_change_it():
    changed = recipes.get("cifar10").changed(["lr=0.5", "epochs=3", "samples=none", "optimizer=adamw"])
    assert (changed.lr, changed.epochs, changed.samples, changed.optimizer) == (0.5, 3, None, "adamw")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("epoch=3", "there is no 'epoch'; did you mean 'epochs'"),
        ("optimizer=sdg", "there is no 'sdg'; did you mean 'sgd'"),
        ("dataset=cifar", "optimizer|dataset: there is no 'cifar'; did you mean 'cifar"),
        ("epochs=many", "epochs must be a whole number, got 'many'"),
        ("epochs=0", "epochs must be at least 1, got 0"),
        ("lr=-1", "lr must not be negative"),
        ("lr", "'lr' must be KEY=VALUE"),
    ],
)
def test_a_wrong_setting_names_the_nearest_right_one(setting, message):
    with pytest.raises(ValueError, match=message):
        recipes.get("cifar10").changed([setting])


def test_wrong_names_and_files(tmp_path):
    with pytest.raises(ValueError, match=r"there is no 'cifar1000'; did you mean 'cifar100'\?"):
        recipes.get("cifar1000")
    with pytest.raises(ValueError, match=r"preset of cifar10: there is no 'papr'; did you mean 'paper'\?"):
        recipes.get("cifar10", "papr")
    path = tmp_path / "mine.json"
    path.write_text('{"dataset": "cifar10", "modle": "resnet18"}')
    with pytest.raises(ValueError, match=r"there is no 'modle'; did you mean 'model'\?"):
        recipes.get(str(path))
    path.write_text('{"dataset": "cifar10"}')
    with pytest.raises(ValueError, match="missing 2 required positional arguments"):
        recipes.get(str(path))
    path.write_text("[1]")
    with pytest.raises(ValueError, match="must hold one JSON object"):
        recipes.get(str(path))
