"""What counts as a number."""

from numbers import Real
from typing import Any


def is_real(value: Any) -> bool:
    """A real number of Python's or numpy's, and not a bool."""
    return isinstance(value, Real) and not isinstance(value, bool)
