"""Which part of a plan is this process's."""

from infobatch.distributed.ranks import Ranks


def test_alone_there_is_one_rank() -> None:
    assert Ranks().here() == (0, 1)
