"""The watch by itself; with real loaders and wrappers it is tested in test_ledger.py and test_delivery.py."""

import pickle

import pytest
from torch.utils.data import SequentialSampler

from infobatch.core.watch import DriftError, Watch


class Tap:
    """Hands out ten indices, as many at a time as asked."""

    def __init__(self):
        self.handed_out = 0
        self.watch = Watch(10)

    def back(self, count, done):
        self.watch.check(count, done, self.handed_out)
        self.watch.note(by_index=False)


@pytest.fixture
def tap():
    tap = Tap()
    tap.watch.open(SequentialSampler(range(10)))
    return tap


def test_nothing_comes_back_before_it_was_opened():
    with pytest.raises(
        DriftError, match=r"before train_data\.sampler handed out any sample.*sampler=train_data\.sampler"
    ):
        Tap().back(4, 0)


def test_without_a_loader_all_that_was_handed_out_must_come_back(tap):
    tap.handed_out = 4
    tap.back(4, 0)
    tap.handed_out = 10
    with pytest.raises(DriftError, match="got 4 losses, but 6 samples were handed out"):
        tap.back(4, 4)
    tap.back(6, 4)
    assert tap.watch.updates == 2
    assert not tap.watch.pending


@pytest.mark.parametrize("handed_out", [0, 3, 5, 8])
def test_any_other_number_is_drift(tap, handed_out):
    tap.handed_out = handed_out
    with pytest.raises(DriftError, match=f"got 4 losses, but {handed_out} samples"):
        tap.back(4, 0)


def test_a_copy_has_no_loader_and_is_not_open():
    watch = Watch(10)
    watch.open(SequentialSampler(range(10)))
    copy = pickle.loads(pickle.dumps(watch))
    with pytest.raises(DriftError, match="before"):
        copy.check(1, 0, 1)
