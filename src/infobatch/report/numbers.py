"""Numbers as they are printed, in the terminal, on the page and in pictures alike."""

from __future__ import annotations


def percent(share: float, digits: int = 1) -> str:
    """A share in percent, with a minus sign, which a hyphen is not; zero has none.

    >>> percent(0.3146), percent(-0.021, 0), percent(-0.0001)
    ('31.5 %', '−2 %', '0.0 %')
    """
    return f"{round(100 * share, digits) + 0.0:.{digits}f} %".replace("-", "−")
