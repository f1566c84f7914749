"""ApiVersions, and what makes a broker close a connection: bytes that are no request, or none it knows."""

from __future__ import annotations

import struct

from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.side import Side

from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.codec import encode
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

SHORT_S = 1.0


def header(key: int, version: int, *, correlation_id: int = 7, client_id: bytes | None = b"raw") -> bytes:
    """A request header of version 1."""
    name = struct.pack(">h", -1) if client_id is None else struct.pack(">h", len(client_id)) + client_id
    return struct.pack(">hhi", key, version, correlation_id) + name


def outcome(side: Side, frame: bytes) -> object:
    """Whether a frame is answered, closes the connection or is met with silence."""
    side.send_frame(frame)
    found = side.receive_frame(SHORT_S)
    return found if isinstance(found, str) else "an answer"


# ApiVersions


def served(answer: object) -> object:
    """The entries by API."""
    if isinstance(answer, dict):
        answer["api_keys"] = {
            each["api_key"]: (each["min_version"], each["max_version"]) for each in answer["api_keys"]
        }
        for name in ("supported_features", "finalized_features"):
            if name in answer:
                answer[name] = {each["name"]: each for each in answer[name]}
    return answer


def common(answer: object) -> object:
    """What both sides serve by now: the APIs of brokers without security, and no features of KRaft."""
    found = served(answer)
    if isinstance(found, dict):
        found["api_keys"] = {
            key: each for key, each in found["api_keys"].items() if key in API_TABLE and key in SERVED
        }
        # Version 6 is advertised only by a Kafka that is told to show its unstable versions.
        if INIT_PRODUCER_ID in found["api_keys"]:
            found["api_keys"][INIT_PRODUCER_ID] = (0, min(found["api_keys"][INIT_PRODUCER_ID][1], 5))
        for name in ("supported_features", "finalized_features", "finalized_features_epoch"):
            found.pop(name, None)
    return found


INIT_PRODUCER_ID = 22
SERVED = frozenset(
    {*range(4), *range(8, 17), *range(18, 38), 42, 43, 44, 45, 46, 47, 57, 60, 61, 65, 66, 68, 69, 74, 75}
) - {36}


@case(versions=range(5))
def api_versions(side: Side, version: int) -> object:
    request = ApiVersionsRequest(client_software_name="side-by-side", client_software_version="1.0")
    return common(side.ask(version, request))


@case(
    {
        "empty-name": ("", "1.0"),
        "empty-version": ("name", ""),
        "space": ("a name", "1.0"),
        "underscore": ("a_name", "1.0"),
        "dash-first": ("-name", "1.0"),
        "dash-last": ("name-", "1.0"),
        "dot": (".", "1.0"),
        "one-letter": ("n", "1"),
        "umlaut": ("nämë", "1.0"),
        "newline": ("name\n", "1.0"),
        "dots": ("a.b-c.d", "1.0-rc.1"),
    },
    versions=(3, 4),
)
def software_name(side: Side, given: tuple[str, str], version: int) -> object:
    name, number = given
    request = ApiVersionsRequest(client_software_name=name, client_software_version=number)
    return common(side.ask(version, request))


@case((5, 6, 99, 32767, -1, -32768))
def api_versions_of_no_version(side: Side, version: int) -> object:
    """Answered in version 0, with the range that there is; the body is not looked at."""
    side.send_frame(header(18, version) + b"\0\0\0\0 whatever")
    frame = side.receive_frame(SHORT_S)
    if isinstance(frame, str):
        return frame
    return frame.hex()


@case((5, 99))
def connection_goes_on_after_unsupported_api_versions(side: Side, version: int) -> object:
    side.send_frame(header(18, version))
    first = side.receive_frame(SHORT_S)
    side.send_frame(header(18, 0, correlation_id=8))
    second = side.receive_frame(SHORT_S)
    return [isinstance(first, bytes), isinstance(second, bytes)]


# What closes a connection


@case((4, 5, 6, 7, 52, 53, 54, 62, 63, 82, 93, 127, 1000, 32767, -1, -32768))
def unknown_api(side: Side, key: int) -> object:
    return outcome(side, header(key, 0) + bytes(20))


@case(
    {
        f"{API_TABLE[key].name}-v{version}": (key, version)
        for key in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.CREATE_TOPICS)
        for version in (-1, API_TABLE[key].min_version - 1, API_TABLE[key].max_version + 1, 100)
    }
)
def unsupported_version(side: Side, given: tuple[ApiKey, int]) -> object:
    key, version = given
    return outcome(side, header(key, version) + bytes(40))


METADATA = {
    version: encode(MetadataRequest(topics=[MetadataRequestTopic(name="some-topic")]), version)
    for version in (0, 1, 9, 12)
}


def metadata_frame(version: int) -> bytes:
    return header(3, version) + (b"\0" if version >= 9 else b"") + METADATA[version]


@case({f"v{version}-{cut}": (version, cut) for version in (1, 12) for cut in (1, 2, 5, 10, 15, 17, 20, 25)})
def cut_body(side: Side, given: tuple[int, int]) -> object:
    version, cut = given
    frame = metadata_frame(version)
    return outcome(side, frame[: max(len(frame) - cut, 0)])


@case((0, 1, 3, 4, 7, 8, 9, 10, 11, 12))
def cut_header(side: Side, size: int) -> object:
    return outcome(side, metadata_frame(1)[:size])


@case({f"v{version}-{size}": (version, size) for version in (0, 1, 9, 12) for size in (1, 4, 1000)})
def bytes_behind_body(side: Side, given: tuple[int, int]) -> object:
    version, size = given
    return outcome(side, metadata_frame(version) + b"x" * size)


BAD_BODIES = {
    "array-too-long": header(3, 1) + struct.pack(">i", 1000),
    "array-huge": header(3, 1) + struct.pack(">i", 2**31 - 1),
    "array-negative": header(3, 1) + struct.pack(">i", -2),
    "string-negative": header(3, 1) + struct.pack(">ih", 1, -2),
    "string-null": header(3, 1) + struct.pack(">ih", 1, -1),
    "string-not-utf8": header(3, 1) + struct.pack(">ih", 1, 2) + b"\xff\xfe",
    "compact-array-huge": header(3, 12) + b"\0" + b"\xff\xff\xff\xff\x0f" + bytes(3),
    "compact-array-varint-too-long": header(3, 12) + b"\0" + b"\xff" * 8,
    "tags-of-header": header(3, 12) + b"\x01\x63\x02ab" + METADATA[12],
    "tags-of-header-cut": header(3, 12) + b"\x05\x63\x02ab",
    "tags-of-body": header(3, 12) + b"\0" + METADATA[12][:-1] + b"\x01\x63\x02ab",
    "tags-of-body-out-of-order": header(3, 12) + b"\0" + METADATA[12][:-1] + b"\x02\x63\x01a\x62\x01b",
    "tags-twice": header(3, 12) + b"\0" + METADATA[12][:-1] + b"\x02\x63\x01a\x63\x01b",
    "boolean-2": header(3, 12) + b"\0" + METADATA[12][:-3] + b"\x02\x02\0",
    "client-id-null": header(3, 1, client_id=None) + METADATA[1],
    "client-id-empty": header(3, 1, client_id=b"") + METADATA[1],
    "client-id-not-utf8": header(3, 1, client_id=b"\xff\xfe") + METADATA[1],
    "client-id-negative": struct.pack(">hhih", 3, 1, 7, -2) + METADATA[1],
    "client-id-too-long": struct.pack(">hhih", 3, 1, 7, 300) + METADATA[1],
    "produce-v2": header(0, 2) + struct.pack(">hii", 1, 1000, 0),
    "produce-v0": header(0, 0) + struct.pack(">hii", 1, 1000, 0),
    "produce-cut": header(0, 3) + struct.pack(">hhi", -1, 1, 1000),
    "produce-records-too-long": header(0, 3)
    + struct.pack(">hhii", -1, 1, 1000, 1)
    + b"\0\1t"
    + struct.pack(">iii", 1, 0, 500),
    "produce-records-negative": header(0, 3)
    + struct.pack(">hhii", -1, 1, 1000, 1)
    + b"\0\1t"
    + struct.pack(">iii", 1, 0, -5),
    "fetch-cut": header(1, 4) + struct.pack(">iii", -1, 0, 0),
    "fetch-v3": header(1, 3) + struct.pack(">iiiii", -1, 0, 0, 100, 0),
    "list-offsets-v0": header(2, 0) + struct.pack(">ii", -1, 0),
    "create-topics-v0": header(19, 0) + struct.pack(">ii", 0, 0),
    "api-versions-v3-cut": header(18, 3) + b"\0\x05a",
    "api-versions-v3-without-body": header(18, 3),
    "api-versions-v0-with-body": header(18, 0) + b"more",
}


@case(BAD_BODIES)
def odd_bodies(side: Side, frame: bytes) -> object:
    return outcome(side, frame)


@case((-1, -2, -(2**31), 104_857_601, 2**31 - 1))
def odd_sizes(side: Side, size: int) -> object:
    side.send_bytes(struct.pack(">i", size) + bytes(100))
    return side.receive_frame(SHORT_S)


@case((0, 1, 9))
def tiny_frames(side: Side, size: int) -> object:
    return outcome(side, bytes(size))


@case()
def pipelined_requests_are_answered_in_order(side: Side) -> object:
    data = b""
    for correlation_id in (5, 6, 7):
        frame = header(18, 0, correlation_id=correlation_id)
        data += struct.pack(">i", len(frame)) + frame
    side.send_bytes(data)
    return [str(side.receive_frame(SHORT_S))[2:18] and index for index in range(3)]


@case()
def requests_before_a_bad_one_are_answered(side: Side) -> object:
    good, bad = header(18, 0), header(3, 77)
    side.send_bytes(struct.pack(">i", len(good)) + good + struct.pack(">i", len(bad)) + bad)
    first = side.receive_frame(SHORT_S)
    return ["an answer" if isinstance(first, bytes) else first, side.receive_frame(SHORT_S)]


@case()
def http(side: Side) -> object:
    side.send_bytes(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return side.receive_frame(SHORT_S)


@case()
def tls(side: Side) -> object:
    side.send_bytes(bytes.fromhex("16030100c5010000c10303") + bytes(190))
    return side.receive_frame(SHORT_S)


@case((0, 1))
def sasl_without_sasl(side: Side, version: int) -> object:
    return outcome(side, header(17, version) + b"\0\5PLAIN")
