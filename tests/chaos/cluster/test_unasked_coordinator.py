"""Which call that does not come back is excused, and that no other is."""

from __future__ import annotations

import pytest
from tests.chaos.cluster.unasked_coordinator import asks_nobody

ADDED = (
    "%7|1794954948.272|RECV|rdkafka#producer-3| [thrd:TxnCoordinator]: TxnCoordinator/3: "
    "Received AddOffsetsToTxnResponse (v0, 6 bytes, CorrId 7, rtt 4.51ms)\n"
)
ASKED = (
    "%7|1794954948.272|SEND|rdkafka#producer-3| [thrd:127.0.0.1:51861/2]: 127.0.0.1:51861/2: "
    "Sent FindCoordinatorRequest (v2, 25 bytes @ 0, CorrId 17)\n"
)
ANSWERED = (
    "%7|1794954948.273|RECV|rdkafka#producer-3| [thrd:127.0.0.1:51861/2]: 127.0.0.1:51861/2: "
    "Received FindCoordinatorResponse (v2, 31 bytes, CorrId 17, rtt 0.69ms)\n"
)
SENT = (
    "%7|1794954948.279|SEND|rdkafka#producer-3| [thrd:127.0.0.1:44387/1]: 127.0.0.1:44387/1: "
    "Sent TxnOffsetCommitRequest (v3, 115 bytes @ 0, CorrId 2)\n"
)


@pytest.mark.parametrize("before", ["", ASKED, ADDED + ASKED + ANSWERED + SENT])
@pytest.mark.parametrize("since", ["", ASKED + ANSWERED, 2 * (ASKED + ANSWERED)])
def test_a_producer_to_which_nobody_owes_an_answer_is_at_fault_itself(before: str, since: str) -> None:
    assert asks_nobody(before + ADDED + since)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(ADDED + SENT, id="the offsets were sent"),
        pytest.param(ADDED + ASKED, id="the coordinator was asked for"),
        pytest.param(
            ADDED + ASKED + ANSWERED.replace("CorrId 17", "CorrId 16"), id="another question was answered"
        ),
        pytest.param(ADDED + ASKED + ANSWERED.replace("/2", "/3"), id="another broker has answered"),
        pytest.param(ADDED + ASKED + ANSWERED + SENT, id="the coordinator was found and sent the offsets"),
        pytest.param(ADDED + ASKED + SENT + ADDED + SENT, id="the offsets were sent the second time"),
        pytest.param(ASKED, id="the offsets are no part of the transaction yet"),
        pytest.param("", id="there is no trace"),
    ],
)
def test_what_a_broker_was_asked_for_stays_a_finding(trace: str) -> None:
    assert not asks_nobody(trace)
