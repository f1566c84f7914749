"""A call of librdkafka that never comes back, because it never asks: told by its trace.

``send_offsets_to_transaction`` has to find the coordinator of the consumer's group, which it remembers. When
that broker was gone from the metadata for a while, librdkafka may wait for its ended thread, and looks
at no timeout meanwhile (its issues 5511 and 5456). The offsets are part of the transaction by then,
and nothing more is sent: neither they nor a question for the coordinator.

Such a producer is started again, as its users have to. A call that was asked of a broker and does not come
back stays a finding.
"""

from __future__ import annotations

TRACE = {"debug": "eos,protocol"}
"""Options of a producer that make it tell."""
STUCK = 4
"""How the process of a producer ends that does not come back from a call."""
_ADDED = "Received AddOffsetsToTxnResponse"
_ASKED = ("Sent TxnOffsetCommitRequest", "Sent FindCoordinatorRequest")


def never_asked(trace: str) -> bool:
    """Whether a producer has asked nobody for anything since its offsets are part of its transaction."""
    added = trace.rfind(_ADDED)
    return added >= 0 and all(trace.rfind(asked) < added for asked in _ASKED)
