import pytest

from infobatch.report.numbers import percent


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [(0.3146, 1, "31.5 %"), (0.3146, 0, "31 %"), (1.0, 1, "100.0 %"), (-0.12, 1, "−12.0 %"), (-0.0004, 1, "0.0 %")],
)
def test_a_share_is_printed_with_its_digits_and_a_minus_sign(share, digits, text):
    assert percent(share, digits) == text


def test_a_share_that_is_not_a_number_is_printed_as_nan():
    assert percent(float("nan")) == "nan %"
