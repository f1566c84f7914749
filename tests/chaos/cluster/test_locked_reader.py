"""Which reader that reads no more is excused, and that no other is."""

from __future__ import annotations

import pytest
from tests.chaos.cluster.locked_reader import is_locked

FAILED_S = 1794991759.671
FAILED = (
    f"%7|{FAILED_S:.3f}|REQERR|assign-confluent-1#consumer-1| [thrd:main]: 127.0.0.1:54983/3: "
    "OffsetForLeaderEpochRequest failed: "
    "Local: Broker handle destroyed without termination: actions Refresh\n"
)
RETRIED = FAILED.replace("Broker handle destroyed without termination", "Broker transport failure")
OTHER_THREAD = (
    "%7|1794991762.145|STATE|assign-confluent-1#consumer-1| [thrd:127.0.0.1:47287/2]: 127.0.0.1:47287/2: "
    "Broker changed state UP -> DOWN\n"
)
MAIN = (
    "%7|1794991763.001|METADATA|assign-confluent-1#consumer-1| [thrd:main]: 127.0.0.1:47287/2: "
    "1/1 requested topic(s) seen in metadata (lookup by name)\n"
)


@pytest.mark.parametrize("before", ["", MAIN, RETRIED, MAIN + FAILED + MAIN])
@pytest.mark.parametrize("since", ["", OTHER_THREAD, 3 * OTHER_THREAD])
def test_a_reader_whose_main_thread_is_silent_since_the_failure_is_at_fault_itself(
    before: str, since: str
) -> None:
    assert is_locked(before + FAILED + since, now_s=FAILED_S + 30)


@pytest.mark.parametrize(
    ("trace", "later_s"),
    [
        pytest.param(FAILED + MAIN, 30, id="its main thread went on"),
        pytest.param(RETRIED, 30, id="the request failed otherwise"),
        pytest.param(FAILED + RETRIED, 30, id="the request failed otherwise the second time"),
        pytest.param(FAILED, 5, id="it may go on yet"),
        pytest.param(MAIN + OTHER_THREAD, 30, id="no request has failed"),
        pytest.param(FAILED.replace("thrd:main", "thrd:broker"), 30, id="another thread said it"),
        pytest.param("", 30, id="there is no trace"),
    ],
)
def test_any_other_reader_stays_a_finding(trace: str, later_s: float) -> None:
    assert not is_locked(trace, now_s=FAILED_S + later_s)
