"""The one rule for ``ratio``, the share that is pruned."""

from ..core.numbers import is_real


def checked_ratio(ratio: float) -> float:
    """``ratio`` as a float in [0, 1), or a ValueError that says what is wrong."""
    if not is_real(ratio) or not 0 <= ratio < 1:
        raise ValueError(
            f"ratio must lie in [0, 1), the share of low-score samples to prune, got {ratio!r}: "
            "the paper uses 0.5; 0 prunes nothing"
        )
    return float(ratio)
