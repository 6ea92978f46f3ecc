"""Every task head of transformers trains as by Trainer itself, or says why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import default_collate

from integrations.transformers_heads import HEADS, LARGE, NO_LOSS_OF_THEIR_OWN, Head, mappings
from integrations.transformers_run import Plain, Pruned, Rows, arguments, weights_of

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Tensors stacked; boxes, of which there may be any number, and flags of the model as they are."""
    as_they_are = {name for name, value in samples[0].items() if isinstance(value, dict | bool)}
    batch = default_collate([{k: v for k, v in sample.items() if k not in as_they_are} for sample in samples])
    for name in as_they_are:
        values = [sample[name] for sample in samples]
        batch[name] = values[0] if isinstance(values[0], bool) else values
    return batch


def train(kind: type, head: Head, folder: Path, orders: list[list[int]] | None = None, **options: Any) -> Any:
    args = arguments(folder, num_train_epochs=2, remove_unused_columns=False, optim="sgd", learning_rate=0.1)
    trainer = kind(head.make(), args, train_dataset=Rows(head.samples()), data_collator=collate, **options)
    if orders is not None:
        trainer.orders = orders
    trainer.train()
    return trainer


def test_no_head_is_left_out() -> None:
    tried = {name for name in HEADS if name.isupper()}
    assert mappings() == tried | NO_LOSS_OF_THEIR_OWN | LARGE


@pytest.mark.parametrize("name", [name for name, head in HEADS.items() if head.refused is None])
def test_a_head_that_trains_does_so_as_by_trainer_itself(name: str, tmp_path: Path) -> None:
    ours = train(Pruned, HEADS[name], tmp_path, pruning={"method": "full"})
    orders = [[i for e, batch in ours.trace.samples if e == epoch for i in batch] for epoch in range(2)]
    theirs = train(Plain, HEADS[name], tmp_path, orders)
    assert ours.trace.losses == pytest.approx(theirs.trace.losses, rel=1e-4)
    assert len(set(ours.trace.losses)) > 3
    for one, other in zip(weights_of(ours.model).values(), weights_of(theirs.model).values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", [name for name, head in HEADS.items() if head.refused is not None])
def test_a_head_that_does_not_train_says_why(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="computes its loss in a way that is not known") as error:
        train(Pruned, HEADS[name], tmp_path)
    error.match(HEADS[name].refused)
    error.match("compute_loss_func")
