"""LeaderAndIsr, versions 2 to 7: the controller says which partitions this broker leads and follows.

Refused as a whole from an older controller (STALE_CONTROLLER_EPOCH) or where it was meant for an earlier
life of this broker (STALE_BROKER_EPOCH), partition by partition where the broker knows a newer leader
epoch. Only in clusters.

Difference: versions 0 and 1, of controllers before Kafka 2.2, are refused with UNSUPPORTED_VERSION; and so
are partitions of topics without an id (KIP-516), which an Apache Kafka controller sends with an
inter.broker.protocol.version before 2.8.
"""

from __future__ import annotations

from collections.abc import Awaitable

from tidelog.broker.cluster.controller_requests import ControllerRequests
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse

API = ApiKey.LEADER_AND_ISR
VERSIONS = (2, 7)


def handle(
    context: RequestContext, request: LeaderAndIsrRequest, controller_requests: ControllerRequests
) -> LeaderAndIsrResponse | Awaitable[LeaderAndIsrResponse]:
    """Lead and follow as told."""
    if context.version < VERSIONS[0]:
        return LeaderAndIsrResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    control = controller_requests
    topics = {each.topic_name: each.topic_id for each in request.topic_states}
    return control.in_order(topics, lambda: control.leader_and_isr_in_slices(request, context.version))
