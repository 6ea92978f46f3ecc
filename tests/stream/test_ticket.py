import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infobatch.stream.ticket import NAME_BITS, PERIOD, are_of, check_tickets, issue, names, tag_of, weights

TAG = tag_of(12345)


@given(st.integers(0, 2**NAME_BITS - 1), st.integers(1, PERIOD), st.integers(0, 2**32))
def test_a_ticket_says_what_was_put_in(name: int, ticks: int, digest: int) -> None:
    ticket = torch.tensor([issue(tag_of(digest), name, ticks)])
    assert weights(ticket).item() == PERIOD / ticks
    assert names(ticket.numpy()).item() == name
    assert are_of(ticket, tag_of(digest))
    assert not are_of(ticket, tag_of(digest + 1))
    assert ticket.item() > 0


def test_what_is_no_ticket_is_refused() -> None:
    good = torch.tensor([issue(TAG, 3, 5), issue(TAG, 4, 5)])
    assert check_tickets(good, 2, TAG) is good
    with pytest.raises(ValueError, match="did not give out, such as 3: pass the batch's tickets, not labels"):
        check_tickets(torch.tensor([3, 7]), 2, TAG)
    with pytest.raises(ValueError, match=r"one number per loss: got shape \(2,\) for 3"):
        check_tickets(good, 3, TAG)
    with pytest.raises(TypeError, match=r"int64 tensor that the batch carries.*got torch.float32"):
        check_tickets(good.float(), 2, TAG)
    with pytest.raises(TypeError, match="got list"):
        check_tickets(good.tolist(), 2, TAG)
    with pytest.raises(ValueError, match="at least one value"):
        check_tickets(good[:0], 0, TAG)
    with pytest.raises(ValueError, match="did not give out"):
        check_tickets(torch.tensor([issue(tag_of(0), 1, 1)]), 1, TAG)


def test_weights_are_exact_inverses() -> None:
    ticks = np.arange(1, PERIOD + 1)
    tickets = torch.tensor([issue(TAG, 0, int(t)) for t in ticks])
    assert np.abs(weights(tickets).numpy() * ticks / PERIOD - 1).max() < 1e-15
