"""Each row's losses against a loop over samples and tokens, and their mean against the models' own loss."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import log_softmax
from transformers.loss.loss_utils import ForCausalLMLoss, ForMaskedLMLoss, ForQuestionAnsweringLoss
from transformers.trainer_pt_utils import LabelSmoother

from infobatch.scoring.language import by_row, row_losses, span_losses, spans_per_row, targets_per_row

WORDS = 11
LENGTHS = [5, 1, 7, 3]


def made(rows: int = 4, positions: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits, and labels of which some are no target; the second row has none at all."""
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(rows, positions, WORDS, dtype=torch.float64, generator=generator)
    labels = torch.randint(WORDS, (rows, positions), generator=generator)
    labels[torch.rand(rows, positions, generator=generator) < 0.3] = -100
    if rows > 1:
        labels[1] = -100
    return logits.float().requires_grad_(), labels


def slowly(logits: torch.Tensor, labels: torch.Tensor, shift: bool, smoothing: float) -> list[tuple[float, int]]:
    """Sum and count of each row, token by token."""
    found = []
    for row_logits, row_labels in zip(logits.tolist(), labels.tolist(), strict=True):
        total, count = 0.0, 0
        for position, label in enumerate(row_labels):
            predicted_from = position - 1 if shift else position
            if label == -100 or predicted_from < 0:
                continue
            log_probabilities = log_softmax(torch.tensor(row_logits[predicted_from], dtype=torch.float64), 0)
            total -= (1 - smoothing) * float(log_probabilities[label]) + smoothing * float(log_probabilities.mean())
            count += 1
        found.append((total, count))
    return found


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("shift", [False, True])
def test_rows_against_a_loop(shift: bool, smoothing: float) -> None:
    logits, labels = made()
    losses = row_losses(logits, labels, shift=shift, label_smoothing=smoothing)

    expected = slowly(logits, labels, shift, smoothing)
    assert losses.total.tolist() == pytest.approx([total for total, _ in expected], rel=1e-5)
    assert losses.tokens.tolist() == [count for _, count in expected]
    assert losses.mean.tolist() == pytest.approx([total / max(count, 1) for total, count in expected], rel=1e-5)
    assert losses.mean[1] == 0


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("shift", [False, True])
def test_rows_laid_end_to_end(shift: bool, padding: int) -> None:
    """As in a batch of one long row, whose parts begin with a label that is no target."""
    logits, labels = made(1, sum(LENGTHS) + padding)
    starts = [sum(LENGTHS[:i]) for i in range(len(LENGTHS))]
    labels[0, starts] = -100
    labels[0, sum(LENGTHS) :] = -100
    losses = row_losses(logits, labels, shift=shift, lengths=torch.tensor(LENGTHS))

    parts = [slice(start, start + length) for start, length in zip(starts, LENGTHS, strict=True)]
    expected = [slowly(logits[:, part], labels[:, part], shift, 0.0)[0] for part in parts]
    assert losses.total.tolist() == pytest.approx([total for total, _ in expected], rel=1e-5)
    assert losses.tokens.tolist() == [count for _, count in expected]
    assert targets_per_row(labels, shift=shift, lengths=torch.tensor(LENGTHS)).equal(losses.tokens)


def test_the_gradient_of_a_row_reaches_its_own_positions_only() -> None:
    logits, labels = made(1, sum(LENGTHS))
    row_losses(logits, labels, shift=True, lengths=torch.tensor(LENGTHS)).total[2].backward()
    assert logits.grad is not None
    touched = logits.grad.abs().sum(-1)[0] > 0
    predicted = [t for t in range(6, 13) if labels[0, t] != -100]
    assert torch.where(touched)[0].tolist() == [t - 1 for t in predicted]


def test_their_mean_is_the_models_own_loss() -> None:
    logits, labels = made()
    for shift, own in [(True, ForCausalLMLoss), (False, ForMaskedLMLoss)]:
        total, tokens = row_losses(logits, labels, shift=shift)
        torch.testing.assert_close(total.sum() / tokens.sum(), own(logits, labels, WORDS))
        smoothed, _ = row_losses(logits, labels, shift=shift, label_smoothing=0.2)
        theirs = LabelSmoother(0.2)({"logits": logits}, labels, shift_labels=shift)
        torch.testing.assert_close(smoothed.sum() / tokens.sum(), theirs)


def test_half_precision_is_summed_in_single() -> None:
    logits, labels = made()
    half = row_losses(logits.detach().bfloat16(), labels, shift=True).total
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, row_losses(logits.detach().bfloat16().float(), labels, shift=True).total)


def test_what_does_not_fit_is_refused() -> None:
    logits, labels = made()
    with pytest.raises(ValueError, match=r"labels must have one entry per position"):
        row_losses(logits, labels[:, 1:], shift=False)
    with pytest.raises(ValueError, match="got 4 rows"):
        by_row(torch.ones(4, 3), torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="no more than the 3 positions"):
        by_row(torch.ones(1, 3), torch.tensor([2, 2]))


@pytest.mark.parametrize("outside", [[], [1], [0, 3]])
def test_spans_are_those_of_question_answering_models(outside: list[int]) -> None:
    generator = torch.Generator().manual_seed(7)
    start_logits, end_logits = torch.randn(2, 4, 9, dtype=torch.float64, generator=generator)
    start, end = torch.tensor([1, 0, -3, 8]), torch.tensor([2, 0, 5, 8])
    start[outside], end[outside] = 9, 20
    losses = span_losses(start_logits, end_logits, start, end)
    own = ForQuestionAnsweringLoss(start_logits, end_logits, start, end)
    torch.testing.assert_close(losses.total.sum() / losses.tokens.sum(), own)
    assert losses.tokens.tolist() == [0.0 if row in outside else 1.0 for row in range(4)]
    for row in set(range(4)) - set(outside):
        of_row = [tensor[row : row + 1] for tensor in (start_logits, end_logits, start[:, None], end[:, None])]
        torch.testing.assert_close(losses.mean[row], ForQuestionAnsweringLoss(*of_row))
    assert not losses.total[outside].any()


def test_half_a_span_is_half_a_target() -> None:
    assert spans_per_row(torch.tensor([1, 9]), torch.tensor([9, 9]), positions=9).tolist() == [0.5, 0.0]
