import numpy as np

from infobatch.stream.hashing import stable_hash
from infobatch.stream.keys import UNKNOWN, Keys


def test_keys_are_numbered_in_order_and_found_again() -> None:
    keys, named = Keys(100), [f"key {number}" for number in range(100)]
    hashes = [stable_hash(name) for name in named]
    assert keys.find(hashes[0], named[0]) == UNKNOWN
    keys.enter(hashes)
    keys.enter(hashes)
    assert [keys.find(key, name) for key, name in zip(hashes, named, strict=True)] == list(range(100))
    assert keys.number(np.array(hashes[::-1])).tolist() == list(range(99, -1, -1))
    assert keys.names() == named
    assert len(keys) == 100


def test_keys_that_meet_in_one_place_are_kept_apart() -> None:
    keys = Keys(4)
    keys.enter([8, 16, 24])  # all of them belong into place 0 of 8
    assert [keys.find(key, str(key)) for key in (8, 16, 24, 32)] == [0, 1, 2, UNKNOWN]


def test_keys_beyond_the_slots_stay_unknown_and_are_counted() -> None:
    keys = Keys(2)
    keys.enter([1, 2, 3, 4])
    keys.enter([3])
    assert keys.number(np.array([1, 2, 3])).tolist() == [0, 1, UNKNOWN]
    assert keys.without_room == {3, 4}
    assert keys.find(3, "three") == UNKNOWN


def test_a_state_brings_everything_back() -> None:
    keys, other = Keys(3), Keys(3)
    keys.enter([5, 6, 7, 8])
    keys.find(6, "six")
    other.enter([1])
    other.load(keys.state())
    assert other.names() == ["#5", "six", "#7"]
    assert other.number(np.array([7, 1])).tolist() == [2, UNKNOWN]
    assert other.without_room == {8}
