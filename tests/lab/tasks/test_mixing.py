"""MixUp, CutMix and Random Erasing against slow loops and timm, and pair weights against every plan and order."""

from itertools import combinations, permutations

import numpy as np
import pytest
import torch
from timm.data.mixup import mixup_target

from infobatch.core.plan import EpochPlan
from infobatch.core.shuffle import Order
from infobatch.core.weights import Weights
from infobatch.lab.tasks.mixing import MixedLosses, PairLosses, erase, mix, smooth_labels


def make_generator(seed=0):
    return torch.Generator().manual_seed(seed)


def distinct(count, side=16):
    """Image i is made of the number i."""
    return torch.arange(count).view(-1, 1, 1, 1).expand(-1, 3, side, side)


LABELS = torch.tensor([0, 2, 1, 1, 0, 2])


def test_mixup_is_a_weighted_sum_of_a_sample_and_its_partner():
    mixed = mix(distinct(6), smooth_labels(LABELS, 3, 0.1), 0.4, 0.0, make_generator())
    assert 0 < mixed.share < 1
    for i in range(6):
        torch.testing.assert_close(
            mixed.images[i], torch.full((3, 16, 16), mixed.share * i + (1 - mixed.share) * (5 - i))
        )
    torch.testing.assert_close(mixed.target, mixup_target(LABELS, 3, mixed.share, 0.1))


@pytest.mark.parametrize("seed", range(20))
def test_cutmix_pastes_one_box_of_the_partner_and_its_share_is_counted_in_pixels(seed):
    mixed = mix(distinct(6), smooth_labels(LABELS, 3, 0.0), 0.0, 1.0, make_generator(seed))
    boxes = set()
    for i in range(6):
        pasted = mixed.images[i] == 5 - i
        assert (pasted | (mixed.images[i] == i)).all()
        assert mixed.share == pytest.approx(1 - pasted.double().mean().item())
        rows, columns = pasted[0].any(1).nonzero(), pasted[0].any(0).nonzero()
        assert pasted.sum() == 3 * len(rows) * len(columns)  # one rectangle, the same in all channels
        boxes.add((tuple(rows.flatten().tolist()), tuple(columns.flatten().tolist())))
    assert len(boxes) == 1
    torch.testing.assert_close(mixed.target, mixup_target(LABELS, 3, mixed.share, 0.0))


def test_of_both_chance_takes_one_and_the_middle_of_an_odd_batch_stays():
    kinds = set()
    for seed in range(30):
        mixed = mix(distinct(5), smooth_labels(torch.arange(5), 5, 0.0), 0.5, 0.5, make_generator(seed))
        kinds.add(bool((mixed.images[0] != mixed.images[0, 0, 0, 0]).any()))
        torch.testing.assert_close(mixed.images[2], torch.full((3, 16, 16), 2.0))
        torch.testing.assert_close(mixed.target[2], torch.eye(5)[2])
    assert kinds == {False, True}


def test_chance_comes_from_the_generator_alone_and_the_batch_is_not_changed():
    before, images = torch.get_rng_state(), distinct(6).contiguous()
    one, again, other = (
        mix(images, smooth_labels(LABELS, 3, 0.0), 1.0, 1.0, make_generator(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(one.images, again.images)
    assert one.share == again.share != other.share
    plain = torch.zeros(8, 3, 16, 16)
    first, second, third = (erase(plain, 0.5, make_generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, third)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(images, distinct(6))
    assert not plain.any()


def test_erasing_fills_one_rectangle_of_about_the_given_share_of_images_with_noise():
    images = torch.full((400, 3, 32, 32), 9.0)
    erased = erase(images, 0.25, make_generator())
    changed = (erased != 9).any(1)
    touched = changed.flatten(1).any(1)
    assert 70 < touched.sum() < 130
    for mask in changed[touched]:
        rows, columns = mask.any(1).sum(), mask.any(0).sum()
        assert mask.sum() == rows * columns
        assert 0.01 < mask.double().mean() < 0.36
    noise = erased[(erased != 9)]
    assert abs(noise.mean()) < 0.02
    assert abs(noise.std() - 1) < 0.02


# -- weights --------------------------------------------------------------------------------------------------------


def test_the_expected_epoch_is_the_one_of_full_data_for_every_function_of_a_pair():
    """Six samples, of four of which two are left out: every subset, in every order, as one batch."""
    value = torch.rand(6, 6, generator=make_generator(), dtype=torch.float64)
    total, plain, cases = 0.0, 0.0, 0
    for kept in combinations(range(2, 6), 2):
        codes = np.array([1, 1, *(2 if i in kept else 0 for i in range(2, 6))], np.uint8)
        weights = Weights.coded(codes, np.array([0.0, 1.0, 2.0]))
        for order in permutations([0, 1, *kept]):
            plan = EpochPlan(1, Order(np.array(order)), weights, 6)
            a, b = torch.tensor(order), torch.tensor(order).flip(0)
            losses, score = PairLosses(plan)(MixedLosses(value[a, b], value[a, a], 0.3), 0)
            assert torch.equal(score, value[a, a])
            own = torch.tensor(plan.weights)
            total, plain, cases = total + own @ losses, plain + own @ value[a, b], cases + 1
    pairs = value[~torch.eye(6, dtype=torch.bool)].sum().item() / 5  # N · F
    assert total.item() / cases == pytest.approx(pairs, rel=1e-12)
    assert abs(plain.item() / cases - pairs) > 1e-3  # by the first sample's weight alone it would not be


def test_batches_are_found_by_their_place_and_what_is_not_mixed_weighs_as_its_sample():
    codes = np.array([1, 2, 2, 2, 1, 0, 0, 2], np.uint8)
    order = np.array([7, 0, 3, 2, 4, 1])
    plan = EpochPlan(1, Order(order), Weights.coded(codes, np.array([0.0, 1.0, 1.5])), 8)
    weigh, ones = PairLosses(plan), torch.ones(3)
    first, second = (weigh(MixedLosses(ones, ones, 0.5), done)[0] for done in (0, 3))
    assert first[1] == 1  # the middle meets itself
    assert second[1] == 1
    ratio = 5 / 7  # (n - 1)/(N - 1): times the partner's weight across groups
    within = ratio * (1.5 * 4 - 1) / 3
    torch.testing.assert_close(first, torch.tensor([within, 1, within]))  # 7 with 3
    torch.testing.assert_close(second, torch.tensor([within, 1, within]))  # 2 with 1
    four = torch.ones(4)
    torch.testing.assert_close(
        weigh(MixedLosses(four, four, 0.5), 2)[0], torch.tensor([within, ratio, 1.5 * ratio, within])
    )  # 3 with 1, 2 with 4
    assert torch.equal(weigh(MixedLosses(ones, ones, 1.0), 0)[0], ones)
    full = EpochPlan(0, Order(np.arange(8)), Weights.ones(8), 8)
    assert torch.equal(PairLosses(full)(MixedLosses(ones, ones, 0.5), 0)[0], ones)
