"""A broker that says what a test tells it to, in the versions that the test gives it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

import pytest

from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.codec import decode
from tidelog.wire.headers import encode_response, parse_request_header
from tidelog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from tidelog.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.wire.schema import Payload

Handler = Callable[[Payload, int], Payload | None]


# As Kafka's brokers do it: nobody is asked for telemetry where nothing receives it.
_TELEMETRY = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)


class ScriptedBroker:
    """Answers requests with ``handlers``; Metadata and ApiVersions it knows by itself.

    ``versions`` are what it offers, by API; ``seen`` lists every request with its version.
    """

    def __init__(self) -> None:
        self.versions: dict[ApiKey, tuple[int, int]] = {
            key: (api.min_version, api.max_version) for key, api in API_TABLE.items() if key not in _TELEMETRY
        }
        self.handlers: dict[ApiKey, Handler] = {
            ApiKey.API_VERSIONS: lambda request, version: self.api_versions(),
            ApiKey.METADATA: lambda request, version: self.metadata(),
        }
        self.topics: list[MetadataResponseTopic] = []
        self.seen: list[tuple[ApiKey, int, Payload]] = []
        self.tls: ssl.SSLContext | None = None
        self.port = 0
        self.connections = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> ScriptedBroker:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._server.close()

    def requests(self, key: ApiKey) -> list[tuple[int, Payload]]:
        return [(version, request) for seen, version, request in self.seen if seen is key]

    def api_versions(self, error_code: int = 0) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            error_code=error_code,
            api_keys=[
                ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in self.versions.items()
            ],
        )

    def metadata(self) -> MetadataResponse:
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=7, host="127.0.0.1", port=self.port)],
            cluster_id="scripted",
            controller_id=7,
            topics=self.topics,
        )

    def add_topic(self, name: str, partitions: int = 1, **fields: object) -> None:
        self.topics.append(
            MetadataResponseTopic(
                name=name,
                partitions=[
                    MetadataResponsePartition(
                        partition_index=index, leader_id=7, replica_nodes=[7], isr_nodes=[7]
                    )
                    for index in range(partitions)
                ],
                **fields,  # type: ignore[arg-type]
            )
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                if not self._answer(frame, writer):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    def _answer(self, frame: bytes, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False closes the connection instead."""
        header, position = parse_request_header(frame)
        key, version = ApiKey(header.api_key), header.api_version
        low, high = self.versions.get(key, (0, -1))
        if not low <= version <= high:
            if key is not ApiKey.API_VERSIONS:
                return False
            refusal = self.api_versions(error_code=35)
            writer.write(encode_response(key, 0, header.correlation_id, refusal))
            return True
        request, _ = decode(API_TABLE[key].request, version, frame, position)
        self.seen.append((key, version, request))
        response = self.handlers[key](request, version)
        if response is not None:
            writer.write(encode_response(key, version, header.correlation_id, response))
        return True


@pytest.fixture
def scripted_broker() -> ScriptedBroker:
    return ScriptedBroker()
