"""LeaderAndIsr, versions 2 to 7: the controller says which partitions this broker leads and follows.

Refused as a whole from an older controller (STALE_CONTROLLER_EPOCH) or where it was meant for an earlier
life of this broker (STALE_BROKER_EPOCH), partition by partition where the broker knows a newer leader
epoch. Only in clusters.

Difference: versions 0 and 1, of controllers before Kafka 2.2, are refused with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse

API = ApiKey.LEADER_AND_ISR
VERSIONS = (2, 7)


def handle(context: RequestContext, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    """Lead and follow as told."""
    if context.version < VERSIONS[0]:
        return LeaderAndIsrResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return context.broker.membership.control.leader_and_isr(request, context.version)
