"""The index in the sample."""

import collections
import types

import pytest
import torch

from infobatch.samples import with_index


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ({"x": 1}, {"x": 1, "index": 7}),
        (types.MappingProxyType({"x": 1}), {"x": 1, "index": 7}),
        ((1, 2), (1, 2, 7)),
        ([1, 2], [1, 2, 7]),
        ((), (7,)),
        (1, (1, 7)),
        ("text", ("text", 7)),
    ],
)
def test_where_the_index_goes(sample, expected):
    found = with_index(sample, 7, "index")
    assert found == expected
    assert type(found) is type(expected)


def test_a_bare_tensor_becomes_a_pair():
    tensor = torch.ones(2)
    found, index = with_index(tensor, 7, "index")
    assert found is tensor
    assert index == 7


def test_the_given_sample_is_left_as_it_is():
    sample = {"x": 1}
    with_index(sample, 7, "index")
    assert sample == {"x": 1}


def test_a_key_that_is_taken():
    with pytest.raises(ValueError, match="index_key='x' is already a key of the samples: choose another name"):
        with_index({"x": 1}, 7, "x")


def test_a_named_tuple_has_no_room():
    point = collections.namedtuple("point", "x y")(1, 2)
    with pytest.raises(TypeError, match="named tuple point: return a dict or a plain tuple"):
        with_index(point, 7, "index")
