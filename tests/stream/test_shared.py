import copy
import multiprocessing
import pickle

import pytest
import torch

from infobatch.stream.shared import SharedArray


def write(numbers: SharedArray) -> None:
    numbers.array[1] = 7


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_what_a_worker_writes_is_seen(method: str) -> None:
    numbers = SharedArray((3,), torch.int64, 2)
    worker = multiprocessing.get_context(method).Process(target=write, args=(numbers,))
    worker.start()
    worker.join()
    assert numbers.array.tolist() == [2, 7, 2]


def test_a_copy_has_memory_of_its_own() -> None:
    numbers = SharedArray((2,), torch.int32)
    for other in (copy.deepcopy(numbers), pickle.loads(pickle.dumps(numbers))):
        other.array[0] = 5
        assert numbers.array.tolist() == [0, 0]
    other.load(torch.tensor([1, 2], dtype=torch.int32))
    assert other.state().tolist() == other.array.tolist() == [1, 2]
