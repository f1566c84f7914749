"""Which call that does not come back is excused, and that no other is."""

from __future__ import annotations

import pytest
from tests.chaos.cluster.unasked_coordinator import never_asked

ADDED = (
    "%7|1794954948.272|RECV|rdkafka#producer-3| [thrd:TxnCoordinator]: TxnCoordinator/3: "
    "Received AddOffsetsToTxnResponse (v0, 6 bytes, CorrId 7, rtt 4.51ms)\n"
)
ASKED = (
    "%7|1794954948.272|SEND|rdkafka#producer-3| [thrd:127.0.0.1:51861/2]: 127.0.0.1:51861/2: "
    "Sent FindCoordinatorRequest (v2, 25 bytes @ 0, CorrId 17)\n"
)
SENT = (
    "%7|1794954948.279|SEND|rdkafka#producer-3| [thrd:127.0.0.1:44387/1]: 127.0.0.1:44387/1: "
    "Sent TxnOffsetCommitRequest (v3, 115 bytes @ 0, CorrId 2)\n"
)


@pytest.mark.parametrize("before", ["", ASKED, ADDED + ASKED + SENT])
def test_a_producer_that_sends_nothing_for_its_offsets_is_at_fault_itself(before: str) -> None:
    assert never_asked(before + ADDED)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(ADDED + SENT, id="the offsets were sent"),
        pytest.param(ADDED + ASKED, id="the coordinator was asked for"),
        pytest.param(ADDED + ASKED + SENT + ADDED + SENT, id="the offsets were sent the second time"),
        pytest.param(ASKED, id="the offsets are no part of the transaction yet"),
        pytest.param("", id="there is no trace"),
    ],
)
def test_what_a_broker_was_asked_for_stays_a_finding(trace: str) -> None:
    assert not never_asked(trace)
