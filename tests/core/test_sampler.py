"""The sampler: a DistributedSampler whose attributes are true and whose iterators cost no Python per sample."""

import itertools

import pytest
from torch.utils.data import DistributedSampler

from infobatch import InfoBatch
from infobatch.core.sampler import PlanIterator


@pytest.fixture
def train_data():
    return InfoBatch(range(10), num_epochs=5, method="random", ratio=0.3)


def test_it_is_a_distributed_sampler_and_says_what_is_true(train_data):
    sampler = train_data.sampler
    assert isinstance(sampler, DistributedSampler)
    assert (sampler.epoch, len(sampler), sampler.num_samples, sampler.total_size) == (0, 10, 10, 10)
    sampler.set_epoch(2)
    assert (sampler.epoch, len(sampler), sampler.num_samples, sampler.total_size) == (2, 7, 7, 7)
    assert (sampler.rank, sampler.num_replicas, sampler.dataset) == (0, 1, train_data)
    assert train_data.epoch == 2


def test_it_yields_plain_ints_in_the_plans_order(train_data):
    indices = list(train_data.sampler)
    assert indices == train_data.plan.indices.tolist()
    assert {type(index) for index in indices} == {int}


def test_every_iterator_is_fresh_and_ends_once(train_data):
    first, second = iter(train_data.sampler), iter(train_data.sampler)
    assert first is not second
    assert iter(first) is first
    assert len(list(itertools.islice(first, 4))) == 4
    assert len(list(second)) == 10
    assert list(second) == []


def test_an_iterator_tells_its_place(train_data):
    train_data.set_epoch(1)
    indices = iter(train_data.sampler)
    assert isinstance(indices, PlanIterator)
    for handed_out in range(8):
        place = {"epoch": 1, "position": handed_out, "handed_out": handed_out, "ended": handed_out == 7}
        assert indices.state_dict() == place
        next(indices, None)


def test_an_iterator_goes_on_only_where_train_data_stands(train_data):
    with pytest.raises(RuntimeError, match=r"epoch 3, sample 4.*epoch 0, sample 0.*train_data.load_state_dict"):
        iter(train_data.sampler).load_state_dict({"epoch": 3, "position": 4, "handed_out": 4, "ended": False})
