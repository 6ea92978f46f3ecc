"""Each image's loss against a loop over its pixels, and their mean against torch's and mmsegmentation's own."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy, log_softmax
from torch.utils.data import DataLoader, TensorDataset

import infobatch
from infobatch.scoring.segmentation import image_losses, with_auxiliary

IMAGES, CLASSES, HEIGHT, WIDTH = 4, 5, 3, 6


def made(ignore_index: int = 255, holes: float = 0.3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits of two heads, and labels with holes; the third image has no label at all if there are holes."""
    generator = torch.Generator().manual_seed(3)
    heads = torch.randn(2, IMAGES, CLASSES, HEIGHT, WIDTH, generator=generator) * 3
    target = torch.randint(CLASSES, (IMAGES, HEIGHT, WIDTH), generator=generator)
    target[torch.rand(target.shape, generator=generator) < holes] = ignore_index
    if holes:
        target[2] = ignore_index
    return heads[0].requires_grad_(), heads[1].requires_grad_(), target


def slowly(logits: torch.Tensor, target: torch.Tensor, ignore_index: int = 255) -> list[tuple[float, int]]:
    """Sum and count of each image, pixel by pixel."""
    found = []
    for image in range(len(target)):
        total, count = 0.0, 0
        for y in range(HEIGHT):
            for x in range(WIDTH):
                if (label := int(target[image, y, x])) != ignore_index:
                    total -= float(log_softmax(logits[image, :, y, x].detach().double(), 0)[label])
                    count += 1
        found.append((total, count))
    return found


@pytest.mark.parametrize("ignore_index", [255, -100, 0])
def test_images_against_a_loop(ignore_index: int) -> None:
    logits, _, target = made(ignore_index)
    losses = image_losses(logits, target, ignore_index=ignore_index)

    expected = slowly(logits, target, ignore_index)
    assert losses.total.tolist() == pytest.approx([total for total, _ in expected], rel=1e-5)
    assert losses.pixels.tolist() == [count for _, count in expected]
    assert losses.mean.tolist() == pytest.approx([total / max(count, 1) for total, count in expected], rel=1e-5)
    assert losses.mean[2] == 0


def test_the_auxiliary_head_counts_by_its_weight() -> None:
    logits, auxiliary, target = made()
    own, early = ([total / max(count, 1) for total, count in slowly(head, target)] for head in (logits, auxiliary))
    for weight in (0.4, 1.5):
        found = with_auxiliary(logits, auxiliary, target, weight=weight)
        assert found.tolist() == pytest.approx([a + weight * b for a, b in zip(own, early, strict=True)], rel=1e-5)
    torch.testing.assert_close(with_auxiliary(logits, auxiliary, target), found - 1.1 * torch.tensor(early))
    other = target.where(target != 255, -1)
    again = with_auxiliary(logits, auxiliary, other, weight=1.5, ignore_index=-1)
    assert torch.equal(again, found)


def test_their_mean_is_the_frameworks_own() -> None:
    logits, _, whole = made(holes=0.0)
    torch.testing.assert_close(image_losses(logits, whole).mean.mean(), cross_entropy(logits, whole))

    logits, _, target = made()
    losses = image_losses(logits, target)
    torch.testing.assert_close(losses.pooled.mean(), cross_entropy(logits, target, ignore_index=255))
    # mmsegmentation's default: ignored pixels are 0, and count.
    everywhere = cross_entropy(logits, target, ignore_index=255, reduction="none").mean()
    torch.testing.assert_close(losses.total.mean() / (HEIGHT * WIDTH), everywhere)
    assert losses.mean.mean().item() != pytest.approx(losses.pooled.mean().item(), rel=1e-3)  # told in the docs


def test_update_gives_the_frameworks_own_mean_when_all_weights_are_1() -> None:
    logits, _, target = made()
    data = infobatch.InfoBatch(TensorDataset(torch.arange(IMAGES)), 3)
    for (index,) in DataLoader(data, IMAGES, sampler=data.sampler):
        losses = image_losses(logits[index], target[index])
        found = data.update(losses.pooled, score=losses.mean)
    torch.testing.assert_close(found, cross_entropy(logits, target, ignore_index=255))
    torch.testing.assert_close(torch.tensor(data.scores), image_losses(logits, target).mean.detach())


@pytest.mark.parametrize("labelled", [True, False])
def test_nothing_labelled_gives_no_loss_and_no_gradient(labelled: bool) -> None:
    logits, auxiliary, target = made()
    if not labelled:
        target[:] = 255
    losses = image_losses(logits, target)
    (with_auxiliary(logits, auxiliary, target).sum() + losses.mean.sum() + losses.pooled.sum()).backward()
    for head in (logits, auxiliary):
        assert head.grad is not None
        assert head.grad.isfinite().all()
        assert not head.grad[2].any()
        assert head.grad[0].any() == labelled
        # Only labelled pixels send a gradient.
        assert torch.equal(head.grad.abs().sum(1) > 0, target != 255)


def test_the_gradient_of_an_image_reaches_its_own_pixels_only() -> None:
    logits, auxiliary, target = made()
    with_auxiliary(logits, auxiliary, target)[1].backward()
    assert logits.grad is not None
    assert [bool(grad.any()) for grad in logits.grad] == [False, True, False, False]


def test_losses_are_fp32_and_labels_may_be_bytes() -> None:
    logits, _, target = made()
    half = image_losses(logits.bfloat16(), target.to(torch.uint8))
    assert {part.dtype for part in (*half, half.mean, half.pooled)} == {torch.float32}
    torch.testing.assert_close(half.total, image_losses(logits.bfloat16().float(), target).total)


def test_labels_of_another_size_are_refused() -> None:
    logits, _, target = made()
    with pytest.raises(ValueError, match=r"of shape \(4, 3, 6\), got \(4, 6, 6\): bring the logits to its size"):
        image_losses(logits, torch.zeros(4, 6, 6))
    with pytest.raises(ValueError, match=r"class per pixel"):
        image_losses(logits, target[:2])
