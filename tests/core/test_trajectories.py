"""The few numbers of a sample, against a slow twin that goes sample by sample."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobatch.core.history import ScoreHistory
from infobatch.core.trajectories import measure

SCORE = st.one_of(st.none(), st.sampled_from([0.001, 0.02, 0.3, 1.0, 1.2, 4.0, 30.0]), st.just(float("nan")))


def history_of(rows: list[list[float | None]]) -> ScoreHistory:
    """A history of these epochs; None: not trained."""
    history = ScoreHistory(len(rows), len(rows[0]))
    for epoch, row in enumerate(rows):
        trained = np.array([i for i, score in enumerate(row) if score is not None], np.int64)
        history.write(epoch, trained, np.array([np.nan if score is None else score for score in row], np.float32))
    return history


@given(st.integers(1, 5).flatmap(lambda n: st.lists(st.lists(SCORE, min_size=n, max_size=n), min_size=1, max_size=6)))
def test_as_the_slow_twin(rows: list[list[float | None]]) -> None:
    history = history_of(rows)
    measured = measure(history)
    stored = [history.of(epoch).astype(float).tolist() for epoch in range(len(rows))]
    size = len(rows[0])
    carried = [[np.nan] * size]
    for row in stored:
        carried.append([old if new != new else new for old, new in zip(carried[-1], row, strict=True)])
    means = [np.nanmean(row) if any(v == v for v in row) else np.nan for row in carried[1:]]
    thresholds = [max(own, np.mean(means)) for own in means]
    suspects = []
    for i in range(size):
        seen = [(v, t) for row, t in zip(stored, thresholds, strict=True) if (v := row[i]) == v]
        known = [v < t for v, t in seen]
        scores = [v for v, _ in seen]
        assert measured.times_trained[i] == sum(row[i] is not None for row in rows)
        assert measured.times_left_out[i] == sum(row[i] is None for row in rows)
        if not scores:
            assert np.isnan([measured.mean[i], measured.variability[i], measured.suspicion[i]]).all()
            assert not measured.never_learned[i] | measured.never_needed[i] | measured.learned[i]
            continue
        assert measured.mean[i] == pytest.approx(np.mean(scores), rel=1e-5)
        assert measured.variability[i] == pytest.approx(np.std(scores), rel=1e-4, abs=1e-6)
        steps = zip(known, known[1:], scores, scores[1:], strict=False)
        assert measured.forgetting_events[i] == sum(was and not now and new > old for was, now, old, new in steps)
        assert measured.never_learned[i] == (not any(known))
        assert measured.never_needed[i] == all(known)
        assert measured.learned[i] == (known[-1] and not all(known))
        weighed = [(max(np.sqrt(e), 1e-3), row[i]) for e, row in enumerate(carried[1:]) if row[i] == row[i]]
        suspects.append((i, sum(w * v for w, v in weighed) / sum(w for w, _ in weighed)))
    order = sorted(suspects, key=lambda pair: pair[1])
    for (i, low), (j, high) in pairwise(order):
        if high > low * 1.0001:
            assert measured.suspicion[i] < measured.suspicion[j]


def test_suspicion_goes_from_0_to_1() -> None:
    measured = measure(history_of([[1.0, 2.0, 9.0], [0.1, 2.0, None], [0.1, None, 8.0]]))
    assert measured.suspicion.tolist() == [0.0, 0.5, 1.0]


def test_a_label_learned_by_heart_is_still_suspected() -> None:
    """Its last loss is the lowest of all, as after a long training."""
    course = [[2.0, 2.1, 2.4], [0.8, 0.7, 3.0], [0.3, 0.3, 2.0], [0.05, 0.06, 0.5], [0.03, 0.02, 0.01]]
    assert measure(history_of(course)).suspicion.argmax() == 2


def test_a_sample_that_was_left_out_keeps_its_last_score() -> None:
    one = measure(history_of([[1.0, 1.0], [0.2, 0.3], [None, 0.1], [None, 0.1]]))
    assert one.suspicion.tolist() == [1.0, 0.0]
