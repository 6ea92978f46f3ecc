import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infobatch.stream.hashing import stable_hash

PLAIN = st.one_of(st.integers(), st.text(), st.binary(), st.none())
VALUES = st.one_of(PLAIN, st.tuples(PLAIN, PLAIN))


@given(VALUES, VALUES)
def test_equal_values_alone_share_a_hash(a: object, b: object) -> None:
    assert (stable_hash(a) == stable_hash(b)) == (a == b)
    assert 0 <= stable_hash(a) < 2**44


def test_it_is_the_same_in_another_process() -> None:
    code = "from infobatch.stream.hashing import stable_hash; print(stable_hash(('web', 3)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == stable_hash(("web", 3))


def test_numbers_of_numpy_are_numbers() -> None:
    assert stable_hash(np.int64(5)) == stable_hash(5)


@pytest.mark.parametrize("value", [torch.tensor(3), 2.5, [1], {"a": 1}])
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match=r"must be a whole number, text, bytes.*return int"):
        stable_hash(value)


def test_ids_in_a_row_and_paths_spread_as_chance_does() -> None:
    for values in (range(200_000), [f"shard-{n // 1000:05d}/{n % 1000:03d}.jpg" for n in range(200_000)]):
        hashes = np.array([stable_hash(value) for value in values])
        assert len(np.unique(hashes)) == 200_000
        expected = (1 << 20) * (1 - np.exp(-200_000 / (1 << 20)))  # slots that chance would fill
        assert len(np.unique(hashes % (1 << 20))) > 0.98 * expected
        assert len(np.unique(hashes // (1 << 20))) > 190_000 * 0.95
