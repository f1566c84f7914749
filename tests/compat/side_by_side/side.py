"""One of the two brokers, as a case sees it: a connection, topics of its own, answers as plain data.

Answers are made comparable here and nowhere else: what a broker makes up (ids of topics, sessions, members
and producers, its own port, the cluster's id, the time of day) is replaced by a word that says what it is,
and what Kafka answers in the order of a hash map is sorted.
Every wait ends after ``TIMEOUT_S``.
"""

from __future__ import annotations

import re
import socket
import struct
import time
from types import TracebackType

from tidelog.errors import ErrorCode
from tidelog.ids import ZERO_UUID, Uuid
from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.codec import decode
from tidelog.wire.headers import RequestHeader, encode_request, parse_response_header
from tidelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.schema import Message, Payload

TIMEOUT_S = 60.0
START_TIMEOUT_S = 30.0
CLOSED = "the connection is closed"
SILENCE = "no answer"
UNKNOWN_ID = Uuid(bytes.fromhex("11111111111141118111111111111111"))

# Kafka answers these from a hash map: in the order of what the topics' names happen to hash to.
_HASH_ORDERED = {
    "results_by_partition": "partition_index",
    "results_by_topic_v3_and_below": "name",
    "topic_results": "name",
}

# What a broker puts behind the client's id to make a member's, and what it takes for a member without one.
_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\b")
_SHORT_UUID = re.compile(r"[0-9A-Za-z_-]{22}")

# The time of day, and what is a Long's range away from it.
_NOW_MS = 1_200_000
"""What is this near counts as now: a file of tests takes minutes where the machine is busy."""
_MILLISECONDS = re.compile(r"\b1[78]\d{11}\b|-9223370\d{12}\b")


class Side:
    """A broker under one case after another."""

    def __init__(self, name: str, host: str, port: int, node_id: int = 1) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.node_id = node_id
        self.prefix = ""
        self.client_id: str | None = "side-by-side"
        self._sock: socket.socket | None = None
        self._topics: list[str] = []
        self._words: dict[object, str] = {}
        self._correlation_id = 0
        self._barriers = 0

    def prepare(self, *, coordinators: bool = False) -> Side:
        """Make a fresh broker ready: both sides alike, and nothing still being loaded.

        A fresh Kafka 4 sets ``min.insync.replicas`` for the whole cluster, so the other side gets it too.
        """
        change = AlterableConfig(name="min.insync.replicas", value="1")
        resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[change])
        self.expect(1, IncrementalAlterConfigsRequest(resources=[resource]))
        self._wait_for_success(4, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))
        if coordinators:
            self._wait_for_success(3, FindCoordinatorRequest(key="group", key_type=0))
            self._wait_for_success(3, FindCoordinatorRequest(key="transaction", key_type=1))
            transaction = InitProducerIdRequest(transactional_id="side-by-side", transaction_timeout_ms=1000)
            self._wait_for_success(4, transaction)
        self.reconnect()
        return self

    def _wait_for_success(self, version: int, request: Payload) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while code := self.expect(version, request).error_code:  # type: ignore[attr-defined]
            assert time.monotonic() < deadline, f"{self.name}: {type(request).__name__}: {code}"
            time.sleep(0.05)

    def begin(self, prefix: str) -> Side:
        """Take up a case: its topics' names will start with ``prefix``."""
        self.prefix = prefix
        return self

    def __enter__(self) -> Side:
        self._topics = []
        self._words = {}
        self.client_id = "side-by-side"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.reconnect()
        if self._topics:
            names = [DeleteTopicState(name=name) for name in self._topics]
            self.ask(6, DeleteTopicsRequest(topics=names, timeout_ms=60_000))
        self.reconnect()

    # Requests

    def ask(self, version: int, message: Payload) -> object:
        """Send a request and give back its answer as plain data, or what came in place of one."""
        found = self.ask_raw(version, message)
        return found if isinstance(found, str) else self.plain(found, version)

    def ask_raw(self, version: int, message: Payload) -> Payload | str:
        """The same with the message itself."""
        return self.send(version, message) or self.receive(ApiKey(message.API_KEY), version)

    def expect(self, version: int, message: Payload) -> Payload:
        """For what a case needs before it starts: fails when there is no answer."""
        found = self.ask_raw(version, message)
        assert not isinstance(found, str), f"{self.name}: {type(message).__name__}: {found}"
        return found

    def send(self, version: int, message: Payload) -> str | None:
        """Send a request, without waiting for its answer."""
        self._correlation_id += 1
        header = RequestHeader(message.API_KEY, version, self._correlation_id, self.client_id)
        return self.send_bytes(encode_request(header, message))

    def send_frame(self, body: bytes) -> str | None:
        """Send a frame: ``body`` with its size before it."""
        return self.send_bytes(struct.pack(">i", len(body)) + body)

    def send_bytes(self, data: bytes) -> str | None:
        """Send bytes as they are; ``CLOSED`` when the broker does not take them."""
        try:
            self._connection().sendall(data)
        except OSError:
            return CLOSED
        return None

    def receive(self, key: ApiKey, version: int) -> Payload | str:
        """The next answer, of the given kind, which has to fill its frame."""
        frame = self.receive_frame()
        if isinstance(frame, str):
            return frame
        correlation_id, pos = parse_response_header(key, version, frame)
        assert correlation_id == self._correlation_id, f"{self.name}: answer to another request"
        response, end = decode(API_TABLE[key].response, version, frame, pos)
        assert end == len(frame), f"{self.name}: {len(frame) - end} bytes behind {type(response).__name__}"
        return response

    def plain_answer(self, key: ApiKey, version: int) -> object:
        """The next answer as plain data."""
        found = self.receive(key, version)
        return found if isinstance(found, str) else self.plain(found, version)

    def receive_frame(self, timeout_s: float = TIMEOUT_S) -> bytes | str:
        """The next frame as it is."""
        connection = self._connection()
        connection.settimeout(timeout_s)
        try:
            (size,) = struct.unpack(">i", self._exactly(connection, 4))
            return self._exactly(connection, size)
        except TimeoutError:
            return SILENCE
        except ConnectionError:
            return CLOSED
        finally:
            connection.settimeout(TIMEOUT_S)

    def another(self) -> Side:
        """A second connection to the same broker, for somebody else in the same case."""
        other = Side(self.name, self.host, self.port, self.node_id)
        other.prefix, other._words = self.prefix, self._words
        return other

    def reconnect(self) -> None:
        """The next request goes over a new connection."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def _connection(self) -> socket.socket:
        if self._sock is None:
            self._sock = socket.create_connection((self.host, self.port), timeout=TIMEOUT_S)
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._sock

    def _exactly(self, connection: socket.socket, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = connection.recv(min(size - len(data), 1 << 20))
            if not chunk:
                raise ConnectionError("closed")
            data += chunk
        return bytes(data)

    # Topics

    def name_of(self, stem: str) -> str:
        """The name under which this case knows ``stem``; deleted at its end if it became a topic."""
        name = f"{self.prefix}-{stem}"
        if name not in self._topics:
            self._topics.append(name)
        return name

    def topic(self, stem: str = "t", partitions: int = 1, /, **configs: str) -> str:
        """A topic that serves, with nothing deleted for its age unless ``retention_ms`` says so."""
        name = self.name_of(stem)
        wanted = {"retention_ms": "-1", **configs}
        creation = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=[self.node_id])
                for index in range(partitions)
            ],
            configs=[
                CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in wanted.items()
            ],
        )
        response = self.expect(7, CreateTopicsRequest(topics=[creation], timeout_ms=60_000))
        (result,) = response.topics  # type: ignore[attr-defined]
        assert result.error_code == 0, f"{self.name}: {result}"
        self.wait_until_led(name, partitions)
        self.know(result.topic_id, f"the id of {name}")
        return name

    def ensure_topic(self, name: str) -> None:
        """A topic of one partition that may be there already and is left there: an internal one."""
        creation = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        self.expect(7, CreateTopicsRequest(topics=[creation], timeout_ms=60_000))
        self.wait_until_led(name, 1)
        self.topic_id(name)

    def topic_id(self, name: str) -> Uuid:
        """The id of a topic."""
        wanted = [MetadataRequestTopic(name=name)]
        response = self.expect(12, MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        found = Uuid(response.topics[0].topic_id)  # type: ignore[attr-defined]
        if found != ZERO_UUID:
            self.know(found, f"the id of {name}")
        return found

    def wait_until_led(self, name: str, partitions: int) -> None:
        """Kafka tells of a topic before its partitions serve."""
        request = ListOffsetsRequest(
            topics=[
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(partitions)
                    ],
                )
            ]
        )
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            response = self.expect(5, request)
            codes = {each.error_code for topic in response.topics for each in topic.partitions}  # type: ignore[attr-defined]
            if codes == {0}:
                return
            assert time.monotonic() < deadline, f"{self.name}: {name} does not serve: {codes}"
            time.sleep(0.005)

    def settle(self) -> None:
        """Wait until the broker has taken up all changes that were answered: they come to it in order."""
        self._barriers += 1
        self.topic(f"barrier-{self._barriers}")

    def wait_until_gone(self, name: str) -> None:
        """Kafka answers a deletion before the partitions are gone."""
        deadline = time.monotonic() + TIMEOUT_S
        while self.topic_id(name) != ZERO_UUID:
            assert time.monotonic() < deadline, f"{self.name}: {name} is still there"
            time.sleep(0.005)

    # Plain data

    def know(self, value: object, word: str) -> None:
        """Show ``word`` wherever ``value`` appears from now on."""
        self._words[value] = word

    def call(self, kind: str, value: object) -> str:
        """The word for something that the broker made up: the same one in all answers of a case."""
        if (kind, value) not in self._words:
            number = sum(1 for known in self._words if isinstance(known, tuple) and known[0] == kind) + 1
            self._words[kind, value] = f"{kind} {number}"
        return self._words[kind, value]

    def plain(self, message: Message, version: int) -> object:
        """A message as dicts and lists, with the fields that the version has."""
        return {
            field.name: self._plain_value(field.name, getattr(message, field.name), version)
            for field in message.FIELDS
            if field.present_in(version)
        }

    def _plain_value(self, name: str, value: object, version: int) -> object:
        if isinstance(value, Message):
            return self.plain(value, version)
        if isinstance(value, list):
            if name in _HASH_ORDERED:
                value = sorted(value, key=lambda each: getattr(each, _HASH_ORDERED[name]))
            return [self._plain_value(name, each, version) for each in value]
        if isinstance(value, bytes) and len(value) == 16 and name != "records":
            return self._words.get(value, value.hex())
        if name.endswith("error_code"):
            return ErrorCode(int(str(value))).name
        if name == "cluster_id" and value:
            return "a cluster id"
        if name == "port" and value == self.port:
            return "the port"
        if name == "session_id" and value:
            return self._words.setdefault(("session", value), "a session")
        if name.endswith(("_time_ms", "timestamp")) and self.is_now(value):
            return "now"
        if name.endswith("producer_id"):
            return self._words.get(("producer", value), value)
        if isinstance(value, str):
            return self.text(value, name)
        return value

    def text(self, value: str, name: str = "") -> str:
        """A text with words for the ids and times in it."""
        if name == "member_id" and (_SHORT_UUID.fullmatch(value) or _UUID.fullmatch(value)):
            return self.call("member", value)
        named = _UUID.sub(lambda found: self.call("uuid", found[0]), value)
        return _MILLISECONDS.sub("<ms>", named)

    @staticmethod
    def is_now(timestamp: object) -> bool:
        return isinstance(timestamp, int) and abs(time.time() * 1000 - timestamp) < _NOW_MS
