"""Losses and expected losses against loops over samples, and their mean against torch's own."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import mse_loss

from infobatch.scoring.diffusion import ExpectedLoss, noise_prediction, relative


def chance(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", [(4, 3, 5, 2), (4, 7), (4, 2, 2, 3, 2)])
def test_losses_against_a_loop_and_torchs_mean(shape: tuple[int, ...]) -> None:
    predicted, target = (torch.randn(shape, generator=chance(seed), requires_grad=True) for seed in (1, 2))
    found = noise_prediction(predicted, target)
    for loss, guess, truth in zip(found.tolist(), predicted, target, strict=True):
        errors = [(g - t) ** 2 for g, t in zip(guess.flatten().tolist(), truth.flatten().tolist(), strict=True)]
        assert loss == pytest.approx(sum(errors) / len(errors), rel=1e-5)
    torch.testing.assert_close(found.mean(), mse_loss(predicted, target))
    ours, theirs = (torch.autograd.grad(loss, predicted)[0] for loss in (found.mean(), mse_loss(predicted, target)))
    torch.testing.assert_close(ours, theirs)


def test_half_precision_is_squared_in_single() -> None:
    predicted = torch.full((1, 4, 8, 8), 300.0, dtype=torch.float16)  # its square is beyond fp16
    found = noise_prediction(predicted, torch.zeros_like(predicted))
    assert (found.dtype, found.item()) == (torch.float32, 90_000)


def test_shapes_that_do_not_fit_are_told() -> None:
    with pytest.raises(ValueError, match=r"must be of one shape, samples first, .* got \(2, 4\) and \(2, 3\)"):
        noise_prediction(torch.zeros(2, 4), torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"got \(2,\) and \(2,\)"):
        noise_prediction(torch.zeros(2), torch.zeros(2))


def test_the_expected_loss_against_a_loop() -> None:
    """Each bucket's mean over all batches, every batch counting 0.9 times as much as the one after it."""
    usual, generator = ExpectedLoss(timesteps=70, buckets=4, memory=0.9), chance()
    booked: list[list[tuple[float, int]]] = []
    for _ in range(6):
        loss, timestep = torch.rand(9, generator=generator), torch.randint(70, (9,), generator=generator)
        usual.book(loss, timestep)
        booked.append(list(zip(loss.tolist(), timestep.tolist(), strict=True)))
    for timestep, found in enumerate(usual(torch.arange(70)).tolist()):
        pairs = [
            (0.9 ** (len(booked) - 1 - age), loss)
            for age, batch in enumerate(booked)
            for loss, t in batch
            if math.floor(t * 4 / 70) == math.floor(timestep * 4 / 70)
        ]
        assert found == pytest.approx(sum(w * loss for w, loss in pairs) / sum(w for w, _ in pairs), rel=1e-5)


def test_what_was_never_seen_and_what_is_not_finite_is_not_expected() -> None:
    usual = ExpectedLoss(timesteps=10, buckets=2)
    usual.book(torch.tensor([math.nan, 0.5, math.inf]), torch.tensor([0, 1, 2]))
    low, high = usual(torch.tensor([4, 5])).tolist()
    assert low == 0.5
    assert math.isnan(high)


def test_relative_scores_lose_the_timestep_and_keep_the_sample() -> None:
    """A loss that is difficulty × what is usual at the timestep: the score finds the difficulty again."""
    usual, generator = ExpectedLoss(), chance()
    difficulty = 0.5 + torch.rand(1000, generator=generator)
    for _ in range(30):
        timestep = torch.randint(1000, (1000,), generator=generator)
        by_timestep = 0.1 * 10 ** (1 - timestep * 20 // 1000 / 20)
        loss = (difficulty * by_timestep).requires_grad_()
        usual.book(loss, timestep)
        score = relative(loss, usual(timestep))
    assert not score.requires_grad
    assert score.mean().item() == pytest.approx(1, abs=0.05)
    plain, found = (torch.corrcoef(torch.stack([difficulty, value]))[0, 1].item() for value in (loss.detach(), score))
    assert found > 0.99 > 0.6 > plain


def test_a_sample_without_loss_where_none_is_expected_has_score_zero() -> None:
    assert relative(torch.zeros(1), torch.zeros(1)).item() == 0


def test_its_state_is_saved_with_the_model_and_is_not_trained() -> None:
    one, other = ExpectedLoss(buckets=3), ExpectedLoss(buckets=3)
    one.book(torch.tensor([0.3, 0.4]), torch.tensor([10, 900]))
    other.load_state_dict(one.state_dict())
    assert other(torch.tensor([10, 900])).tolist() == pytest.approx([0.3, 0.4])
    assert not list(one.parameters())


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="buckets must be from 1 to the number of timesteps, 10, got 11"):
        ExpectedLoss(10, 11)
    with pytest.raises(ValueError, match=r"memory must be from 0, .* got 1\.5"):
        ExpectedLoss(memory=1.5)
