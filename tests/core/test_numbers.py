"""What counts as a number."""

import numpy as np
import pytest

from infobatch.core.numbers import is_real


@pytest.mark.parametrize("value", [0, 0.5, np.float32(0.5), np.float64(1), np.int64(3), float("nan")])
def test_numbers_of_python_and_numpy(value):
    assert is_real(value)


@pytest.mark.parametrize("value", [True, np.True_, "0.5", None, [0.5], 1j])
def test_what_is_not_a_real_number(value):
    assert not is_real(value)
