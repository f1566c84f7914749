"""GetTelemetrySubscriptions, version 0: which of its figures a client is to push, and how (KIP-714).

Behaviour as in Kafka: a client without an instance id gets one; whoever asks again before its push interval
is over is THROTTLING_QUOTA_EXCEEDED, unless the subscriptions have changed or its last push was refused for
being of another subscription or packed in an unknown way. See ``broker/telemetry``. Kafka serves it only
where a plugin receives what clients push; here the broker itself does.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.broker.telemetry.client_telemetry import ACCEPTED, ClientTelemetry
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

API = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS
VERSIONS = (0, 0)


def handle(
    context: RequestContext, request: GetTelemetrySubscriptionsRequest, client_telemetry: ClientTelemetry
) -> GetTelemetrySubscriptionsResponse:
    """Tell a client what it is asked for."""
    instance_id, asked = client_telemetry.ask(context, request.client_instance_id)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=asked.subscription_id,
        accepted_compression_types=[int(codec) for codec in ACCEPTED],
        push_interval_ms=asked.interval_ms,
        telemetry_max_bytes=client_telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=list(asked.metrics),
    )
