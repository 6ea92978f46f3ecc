"""A task with nothing but what it must have: its hooks do nothing, and it is trained and compared all the same."""

import pytest
import torch
from torch import nn

from infobatch.lab.comparison import PICTURES, Comparison
from infobatch.lab.method import MethodSpec
from infobatch.lab.tasks.classification import ClassificationRecipe
from infobatch.lab.tasks.task import Selectable, Task

RECIPE = ClassificationRecipe("cifar10", "small-cnn", 2, batch_size=5)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 20

    def __getitems__(self, indices):
        return torch.tensor(indices, dtype=torch.float32)


class Least(Task):
    metric, higher_is_better = "nothing", True
    train = Numbers()

    def model(self, seed):
        return nn.Linear(1, 1)

    def losses(self, model, batch, generator, rows=None):
        return model(batch[:, None])[:, 0] ** 2

    def evaluate(self, model):
        return 7.0


def test_hooks_that_a_task_does_not_have_do_nothing(tmp_path):
    [record] = Comparison(RECIPE, [MethodSpec.parse("full")], [0], tmp_path).run(Least())
    assert record.values == (7.0, 7.0)
    assert record.further == ()
    assert len(record.hardest) == 12  # which a report would show, had the task pictures
    assert not (tmp_path / PICTURES).exists()


@pytest.mark.parametrize(("kind", "missing"), [(Task, "evaluate"), (Selectable, "labels")])
def test_what_a_task_must_have_is_asked_for_when_it_is_made(kind, missing):
    with pytest.raises(TypeError, match=missing):
        type("Unfinished", (kind,), {})()
