"""Numbers as text: the same in the terminal, on the page and in pictures."""

from __future__ import annotations


def percent(share: float, digits: int = 1) -> str:
    """A share in percent, with a real minus sign (−) and none before zero.

    >>> percent(0.3146), percent(-0.021, 0), percent(-0.0001)
    ('31.5 %', '−2 %', '0.0 %')
    """
    return f"{round(100 * share, digits) + 0.0:.{digits}f} %".replace("-", "−")
