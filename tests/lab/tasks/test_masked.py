"""Masked images as a task: losses, masks, both metrics, and a comparison."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import ViTMAEModel

from distributed.launch import ROOT, python
from infobatch.lab.comparison import Comparison
from infobatch.lab.data import fashion, folders
from infobatch.lab.data.datasets import IMAGENET_MEAN, IMAGENET_STD, Images, ImageSplit
from infobatch.lab.method import MethodSpec
from infobatch.lab.tasks.masked import MaskedImages, MaskedRecipe, linear_probe, position_embedding

RECIPE = MaskedRecipe("fashion-mnist", "vit-mae-tiny", 3, 16, "adamw", lr=2e-3, augment="none", held_out=40)


def some(split, count):
    return ImageSplit(split.images[:count, ..., None], split.labels[:count].astype(np.int64))


DATA = fashion.load()
IMAGES = Images("fashion-mnist", some(DATA.train, 64), some(DATA.test, 60), (0.286,), (0.353,), fashion.CLASSES)


def make_generator(seed=0):
    return torch.Generator().manual_seed(seed)


def task(**settings):
    return MaskedImages(replace(RECIPE, **settings), IMAGES)


@pytest.mark.parametrize("normalised", [False, True])
def test_losses_are_one_per_image_and_their_mean_is_the_models_own(normalised):
    trained = task(normalised=normalised)
    model = trained.model(0)
    images, labels = trained.train.__getitems__(list(range(16)))
    losses = trained.losses(model, (images, labels), make_generator())
    output = model((images / 255 - 0.286) / 0.353, noise=torch.rand(16, 49, generator=make_generator()))
    assert losses.shape == (16,)
    assert output.mask.sum(1).tolist() == [37] * 16  # three quarters of 49 patches, rounded up
    torch.testing.assert_close(losses.mean(), output.loss, rtol=1e-4, atol=1e-5)
    losses.mean().backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


def test_losses_of_some_rows_are_those_they_have_in_the_whole_batch():
    trained, rows = task(augment="crop-flip"), torch.tensor([9, 2, 5])
    model, batch = trained.model(0).eval(), trained.train.__getitems__(list(range(16)))
    some, whole = (trained.losses(model, batch, make_generator(1), chosen) for chosen in (rows, None))
    torch.testing.assert_close(some, whole[rows], rtol=1e-4, atol=1e-5)


def test_masks_and_augmentation_depend_on_the_generator_alone():
    trained = task(augment="crop-flip")
    before = torch.get_rng_state()
    model = trained.model(0)
    batch = trained.train.__getitems__(list(range(16)))
    generator = make_generator(1)
    one, next_one = (trained.losses(model, batch, generator) for _ in range(2))
    again, other = (trained.losses(model, batch, make_generator(seed)) for seed in (1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, next_one)
    assert not torch.equal(one, other)
    assert not torch.equal(one, task().losses(model, batch, make_generator(1)))
    assert torch.equal(torch.get_rng_state(), before)


def test_models_depend_on_their_seed():
    one, again, other = (task().model(seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["decoder.decoder_pred.weight"], other["decoder.decoder_pred.weight"])


def test_the_model_knows_where_a_patch_is():
    """Transformers leaves frozen positions of models from a config at zero; ours are its decoder's rule."""
    model = task().model(0)
    ours, decoder = model.decoder.decoder_pos_embed.clone(), model.decoder
    with torch.random.fork_rng():
        decoder._is_hf_initialized = False
        decoder.initialize_weights(49)
    torch.testing.assert_close(ours, decoder.decoder_pos_embed)
    assert ours.abs().max() > 0.5
    torch.testing.assert_close(model.vit.embeddings.position_embeddings[0], position_embedding(7, 64))
    assert not model.vit.embeddings.position_embeddings.requires_grad
    assert model.vit.embeddings.cls_token.std() > 0.01
    assert model.decoder.mask_token.std() > 0.01
    assert 0.1 < model.vit.embeddings.patch_embeddings.projection.weight.std() < 0.2  # Xavier's: √(2 / (16 + 64))


def test_the_error_is_over_the_held_out_images_with_masks_that_stay():
    judged = task()
    model = judged.model(0).train()
    error = judged.evaluate(model)
    assert not model.training
    pixels = torch.from_numpy(DATA.test.images[:40, None])
    with torch.inference_mode():
        output = model((pixels / 255 - 0.286) / 0.353, noise=torch.rand(40, 49, generator=make_generator(0)))
    assert error == pytest.approx(output.loss.item(), rel=1e-4)
    assert judged.evaluate(model) == error
    assert (judged.metric, judged.higher_is_better) == ("held-out reconstruction error", False)


def test_features_are_the_encoders_for_whole_images():
    judged = task(metric="probe")
    model = judged.model(0).eval()
    with torch.inference_mode():
        features, labels = judged.features(model, judged.test)
        config = type(model.config)(**{**model.config.to_dict(), "mask_ratio": 0.0})
        encoder = ViTMAEModel(config).eval()
        encoder.load_state_dict(model.vit.state_dict())
        tokens = encoder((judged.test.images / 255 - 0.286) / 0.353).last_hidden_state
    torch.testing.assert_close(features, tokens[:, 1:].mean(1), rtol=1e-4, atol=1e-5)
    assert labels.tolist() == DATA.test.labels[:40].tolist()
    assert model.config.mask_ratio == 0.75


def test_the_probe_is_judged_on_held_out_images_and_draws_nothing():
    judged = task(metric="probe")
    model = judged.model(0)
    before = torch.get_rng_state()
    accuracy = judged.evaluate(model)
    assert torch.equal(torch.get_rng_state(), before)
    with torch.inference_mode():
        train, test = judged.features(model, judged.train), judged.features(model, judged.test)
    guesses = linear_probe(*train, test[0], 10)
    assert accuracy == pytest.approx(100 * (guesses == test[1]).double().mean().item())
    assert accuracy > 25  # of ten classes, by features of a network that has learnt nothing yet
    assert (judged.metric, judged.higher_is_better) == ("linear probe, %", True)
    # The other metric is measured too, at the end.
    errors = task()
    assert judged.further(model) == [(errors.metric, errors.evaluate(model), False)]
    assert errors.further(model) == [(judged.metric, accuracy, True)]


def test_the_probe_solves_ridge_regression():
    """Against least squares with the penalty as further rows, column by column."""
    generator = make_generator()
    train, test = (torch.randn(n, 6, generator=generator) * torch.arange(1, 7) + 5 for n in (50, 200))
    train[:, 3], test[:, 3] = 2.0, 2.0  # says nothing
    labels = torch.randint(4, (50,), generator=generator)
    x, asked = train.double().numpy(), test.double().numpy()
    mean, deviation = x.mean(0), x.std(0)
    deviation[3] = 1
    x, asked = (x - mean) / deviation, (asked - mean) / deviation
    outputs = []
    for label in range(4):
        wanted = (labels.numpy() == label).astype(float)
        rows = np.concatenate([x, np.sqrt(1e-3 * 50) * np.eye(6)])
        solution, *_ = np.linalg.lstsq(rows, np.concatenate([wanted - wanted.mean(), np.zeros(6)]))
        outputs.append(asked @ solution + wanted.mean())
    assert linear_probe(train, labels, test, 4).tolist() == np.argmax(outputs, 0).tolist()


def test_pictures_are_the_training_images_and_the_names_of_what_they_show():
    pictures, names = task().pictures([7, 2])
    np.testing.assert_array_equal(pictures, DATA.train.images[[7, 2]][..., None])
    assert names == [fashion.CLASSES[DATA.train.labels[i]] for i in (7, 2)]


def test_bf16_computes_in_bf16_and_gives_losses_in_fp32():
    plain, reduced = task(), task(precision="bf16")
    model = plain.model(0)
    batch = plain.train.__getitems__(list(range(16)))
    exact, rounded = (by.losses(model, batch, make_generator()) for by in (plain, reduced))
    assert exact.dtype == rounded.dtype == torch.float32
    assert not torch.equal(exact, rounded)
    torch.testing.assert_close(exact, rounded, rtol=0.05, atol=0.05)


def test_pictures_in_folders_are_read_by_workers(tmp_path):
    for split, images, count in (("train", DATA.train.images, 6), ("val", DATA.test.images, 4)):
        (tmp_path / split / "thing").mkdir(parents=True)
        for i, pixels in enumerate(images[:count]):
            Image.fromarray(pixels).resize((80, 60)).save(tmp_path / split / "thing" / f"{i}.png")
    train, test, classes = folders.read_class_folders(tmp_path)
    small = (replace(lazy, size=32) for lazy in (train, test))
    data = Images("imagefolder", *small, IMAGENET_MEAN, IMAGENET_STD, classes)
    recipe = replace(RECIPE, dataset="imagefolder", workers=1)
    trained = MaskedImages(recipe, data)
    model = trained.model(0)
    losses = trained.losses(model, trained.train.__getitems__([0, 1, 2]), make_generator())
    assert losses.isfinite().all()
    assert np.isfinite(trained.evaluate(model))
    assert trained.pictures([5])[1] == ["thing"]
    with pytest.raises(ValueError, match=r"workers must be at least 1, got 0 \(--set workers=4\)"):
        MaskedImages(replace(recipe, workers=0), data)


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match=r"mask_ratio must be above 0 and below 1, got 1\.0; MAE's is 0\.75"):
        replace(RECIPE, mask_ratio=1.0)
    with pytest.raises(ValueError, match="held_out must be at least 1, or None for all test images, got 0"):
        replace(RECIPE, held_out=0)
    with pytest.raises(ValueError, match="did you mean 'vit-mae-tiny'"):
        replace(RECIPE, model="vit-mae-tyny")
    with pytest.raises(ValueError, match="vit-mae-base needs images whose side is a multiple of 16, got 28"):
        task(model="vit-mae-base")
    with pytest.raises(ValueError, match="precision fp16 needs a GPU"):
        MaskedImages(replace(RECIPE, precision="fp16"), IMAGES, "cpu")


def test_a_comparison_prunes_and_learns(tmp_path):
    recipe = replace(RECIPE, epochs=5, delta=0.7, schedule="constant", samples=60)
    methods = [MethodSpec.parse(name) for name in ("full", "infobatch")]
    full, pruned = Comparison(recipe, methods, [0], tmp_path).run(MaskedImages(recipe, IMAGES))
    assert full.kept == (60,) * 5
    assert pruned.kept[0] == 60 > pruned.kept[1]
    assert pruned.kept[4] == 60
    for record in (full, pruned):
        assert record.values[-1] < 0.97 * record.values[0]
        assert [measure.name for measure in record.further] == ["linear probe, %"]
    assert full.recipe["task"] == "masked"
    assert recipe.changed(["metric=probe", "mask_ratio=0.5", "normalised=false"]).mask_ratio == 0.5


@pytest.mark.slow
def test_the_example_learns_and_saves():
    done = python(ROOT / "examples" / "masked.py", "--epochs", 4, "--samples", 300)
    errors = [float(line.split()[-1]) for line in done.stdout.splitlines() if "reconstruction error" in line]
    assert len(errors) == 4
    assert errors[-1] < 0.8 * errors[0]
    assert re.search(r"saved [1-9]\d?\.\d% of full training", done.stdout)
