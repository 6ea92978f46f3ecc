import pytest

from infobatch.lab.process import _reason


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (-9, "the process was ended by SIGKILL (out of memory?)"),
        (-15, "the process was ended by SIGTERM"),
        (-35, "the process was ended by signal 35"),  # a real-time signal, which has no name
        (3, "the process ended with exit code 3 before the function returned"),
    ],
)
def test_the_reason_names_the_signal_or_the_exit_code(tmp_path, code, reason):
    assert _reason(tmp_path, code) == reason
