"""Which epochs are pruned: none of the first, none of the last.

Eq. 10 of the paper prunes epoch t only while t < δ·C. The first epoch has no scores yet and is always full.
"""

import math
from fractions import Fraction


def pruning_epochs(num_epochs: int, delta: float, warmup: int = 0) -> range:
    """The epochs that may be pruned: ``max(1, warmup) <= t < delta * num_epochs``.

    ``delta`` is read as the decimal number the user wrote, so that 0.07 of 100 epochs is 7 and not
    7.000000000000001.

    >>> pruning_epochs(10, 0.875)  # δ·C = 8.75: epoch 8 is still pruned, epoch 9 is full
    range(1, 9)
    >>> pruning_epochs(100, 0.07)
    range(1, 7)
    """
    first_annealed = math.ceil(Fraction(repr(float(delta))) * num_epochs)
    first = max(1, warmup)
    return range(first, max(first, first_annealed))
