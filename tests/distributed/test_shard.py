"""Which part of a plan is this process's."""

from infobatch.distributed import shard


def test_alone_there_is_one_rank() -> None:
    assert shard.here() == (0, 1)
