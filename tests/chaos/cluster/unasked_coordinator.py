"""A call of librdkafka that never comes back, because it asks nobody any more: told by its trace.

``send_offsets_to_transaction`` has to find the coordinator of the consumer's group, which it remembers. When
that broker is gone from the metadata, librdkafka (2.16) ends its thread for it, goes on to wait for that
thread to connect, and looks at no timeout meanwhile (its issues 5511 and 5456). The offsets are part of the
transaction by then; they are not sent, and no broker owes the producer an answer.

Such a producer is started again, as its users have to. A call for which a broker was asked and has not
answered stays a finding.
"""

from __future__ import annotations

import re

TRACE = {"debug": "eos,protocol"}
"""Options of a producer that make it tell."""
STUCK = 4
"""How the process of a producer ends that does not come back from a call."""
_ADDED = "Received AddOffsetsToTxnResponse"
_QUESTION = re.compile(
    r"(?P<broker>\S+): (?P<way>Sent|Received) (?P<what>FindCoordinator|TxnOffsetCommit)(Request|Response) "
    r"\(.*?CorrId (?P<number>\d+)"
)


def asks_nobody(trace: str) -> bool:
    """Whether offsets are part of a transaction and unsent, and no broker owes the producer an answer."""
    _, added, since = trace.rpartition(_ADDED)
    if not added:
        return False
    unanswered: set[tuple[str, str]] = set()
    for found in _QUESTION.finditer(since):
        if found["what"] == "TxnOffsetCommit":
            return False
        question = (found["broker"], found["number"])
        if found["way"] == "Sent":
            unanswered.add(question)
        else:
            unanswered.discard(question)
    return not unanswered
