"""PushTelemetry, version 0: takes the figures that a client pushes (KIP-714); see ``broker/telemetry``.

Behaviour as in Kafka: INVALID_REQUEST for a reserved instance id and after a push that was said to be the
last, THROTTLING_QUOTA_EXCEEDED before the interval is over (but not for the last push, and, other than in
Kafka, for any push while a few wait to be read),
UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE beyond ``telemetry.max.bytes``,
packed or unpacked, or of more than a hundred thousand elements, and INVALID_RECORD for what is no OTLP.
"""

from __future__ import annotations

from collections.abc import Awaitable

from tidelog.broker.context import RequestContext
from tidelog.broker.telemetry.client_telemetry import ClientTelemetry
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

API = ApiKey.PUSH_TELEMETRY
VERSIONS = (0, 0)


def handle(
    context: RequestContext, request: PushTelemetryRequest, client_telemetry: ClientTelemetry
) -> PushTelemetryResponse | Awaitable[PushTelemetryResponse]:
    """Check a push at once, and read it in its turn."""
    reading = client_telemetry.push(
        context,
        request.client_instance_id,
        request.subscription_id,
        request.compression_type,
        request.metrics,
        terminating=request.terminating,
    )
    return PushTelemetryResponse() if reading is None else _when_read(reading)


async def _when_read(reading: Awaitable[None]) -> PushTelemetryResponse:
    await reading
    return PushTelemetryResponse()
