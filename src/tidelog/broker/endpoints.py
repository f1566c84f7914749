"""The addresses of brokers, for answers that send clients elsewhere."""

from __future__ import annotations

from collections.abc import Collection

from tidelog.metadata.image import MetadataImage
from tidelog.wire.primitives import Endpoint


def endpoints_of(image: MetadataImage, broker_ids: Collection[int], listener: str) -> list[Endpoint]:
    """The addresses of brokers on one listener."""
    found: list[Endpoint] = []
    for broker in filter(None, map(image.brokers.get, broker_ids)):
        found += [
            (broker.broker_id, endpoint.host, endpoint.port, broker.rack)
            for endpoint in broker.endpoints
            if endpoint.name == listener
        ]
    return found
