"""Gradients in factored form are the vectors that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from infobatch.static.vectors import Vectors, distance, gradients, points, tensor

RNG = np.random.default_rng(0)
ERRORS, FEATURES = RNG.normal(size=(7, 3)), RNG.normal(size=(7, 4))


def written_out(bias: bool) -> torch.Tensor:
    inputs = np.concatenate([FEATURES, np.ones((7, 1))], 1) if bias else FEATURES
    return torch.from_numpy(np.einsum("nc,nd->ncd", ERRORS, inputs).reshape(7, -1))


@pytest.mark.parametrize("bias", [True, False])
def test_factored_gradients_behave_like_written_out_ones(bias: bool) -> None:
    ours, full = gradients(ERRORS, FEATURES, bias), written_out(bias)
    torch.testing.assert_close(ours.products(ours), full @ full.T)
    torch.testing.assert_close(ours.squares, full.square().sum(1))
    torch.testing.assert_close(ours.sum().flatten(), full.sum(0))
    torch.testing.assert_close(ours.along(ours.sum()), full @ full.sum(0))
    torch.testing.assert_close(distance(ours.take([4, 2]), ours), torch.cdist(full[[4, 2]], full), atol=1e-6, rtol=0)
    unit = torch.nn.functional.normalize(full, dim=1)
    ours = ours.directions()
    torch.testing.assert_close(ours.products(ours), unit @ unit.T)
    torch.testing.assert_close(ours.squares, torch.ones(7, dtype=torch.float64))


def test_one_factor_is_a_plain_matrix() -> None:
    rows = torch.from_numpy(FEATURES)
    torch.testing.assert_close(Vectors(rows).along(Vectors(rows).sum()), rows @ rows.sum(0))
    torch.testing.assert_close(distance(points(FEATURES), points(FEATURES)), torch.cdist(rows, rows), atol=1e-6, rtol=0)


def test_distances_far_from_the_origin_keep_their_digits() -> None:
    near = RNG.normal(size=(20, 5)).astype(np.float32)
    far = points(near + np.float32(1000))
    torch.testing.assert_close(distance(far, far), torch.cdist(tensor(near), tensor(near)), atol=5e-3, rtol=1e-3)


def test_numbers_of_any_kind_become_float32_and_float64_stays() -> None:
    assert tensor(np.arange(3)).dtype == torch.float32
    assert tensor(np.arange(3, dtype=np.float16)).dtype == torch.float32
    assert tensor([1.5]).dtype == torch.float64
