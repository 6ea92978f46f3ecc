"""What a method has to bring, and what it gets for nothing."""

import dataclasses

import numpy as np
import pytest

from infobatch.core.method import Epoch, Method, MethodInfo
from infobatch.core.weights import Weights


class Minimal(Method):
    """The least a method needs."""

    info = MethodInfo(name="minimal", summary="", reference="", unbiased=True)

    def select(self, scores, epoch, rng):
        return Weights.ones(len(scores))

    def expected_saving(self, pruning, num_epochs):
        return 0.0

    def options(self):
        return {}


def test_three_functions_are_enough():
    method = Minimal()
    method.check(10, range(1, 3), 4)
    assert not method.many_weights
    assert method.select(np.zeros(3, np.float32), Epoch(1, range(1, 3), 4, 0), np.random.default_rng(0)).uniform


@pytest.mark.parametrize("missing", ["select", "expected_saving", "options"])
def test_without_one_of_them_it_cannot_be_made(missing):
    members = {name: value for name, value in vars(Minimal).items() if name != missing and not name.startswith("_abc")}
    with pytest.raises(TypeError, match=missing):
        type("Lacking", (Method,), members)()


def test_a_card_and_an_epoch_cannot_be_changed():
    for record, name in ((Minimal.info, "unbiased"), (Epoch(1, range(1, 3), 4, 0), "index")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(record, name, 0)
