"""The one rule for ``ratio``, the share that is pruned, and for shares like it."""

from ..core.numbers import is_real


def checked_ratio(ratio: float, name: str = "ratio", meaning: str = "the share of low-score samples to prune") -> float:
    """``ratio`` as a float in [0, 1), or a ValueError that says what is wrong."""
    if not is_real(ratio) or not 0 <= ratio < 1:
        hint = ": the paper uses 0.5; 0 prunes nothing" if name == "ratio" else ""
        raise ValueError(f"{name} must lie in [0, 1), {meaning}, got {ratio!r}{hint}")
    return float(ratio)
