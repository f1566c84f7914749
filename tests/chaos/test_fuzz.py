"""Nonsense against a live broker: every served API, bent frames and well-formed frames full of odd values.

Whatever comes, the broker lives, its log speaks of no bug, its memory is bounded, and a client with manners
is served.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from tests.chaos.amount import times
from tests.chaos.clients import Admin, Session, Writer, read_from, values, wait_until
from tests.chaos.conftest import StartBroker

from tidelog.broker.served import SERVED
from tidelog.records.batch import HEADER_SIZE, write_crc
from tidelog.records.compression import Codec
from tidelog.records.record import Record, encode_batch
from tidelog.testing.broker_process import BrokerProcess
from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.headers import RequestHeader, encode_request
from tidelog.wire.messages import produce
from tidelog.wire.schema import Field, Message, Payload

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

MB = 1024 * 1024
FRAMES = times(1000, 3000)
PER_CONNECTION = 15
SLACK_BYTES = 80 * MB

TOPICS = ["plain", "stamped", "zipped", "compacted", "absent", "", "a" * 249, "a" * 250, "sl/ash", ".", "é"]
OPTIONS = [
    "retention.ms",
    "cleanup.policy",
    "segment.bytes",
    "compression.type",
    "no.such.option",
    "",
    "log.dirs",
]
STRINGS = [
    *TOPICS,
    *OPTIONS,
    "0",
    "1",
    "-1",
    "delete",
    "compact",
    "zstd",
    "\x00",
    "x" * 1000,
    "/tmp",
    "=",
    ",",
]
# Small, odd and huge; none in between, which would honestly make thousands of partitions.
NUMBERS = [-2, -1, 0, 1, 2, 3, 20_000]
M = TypeVar("M", bound=Message)
LIMITS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "uint32": 32, "int64": 63}


class Fuzz:
    """Random messages and frames, all from one seed."""

    def __init__(self, chance: random.Random, topic_ids: list[bytes]) -> None:
        self.chance = chance
        self.topic_ids = [*topic_ids, bytes(16), b"\xff" * 16]

    def request(self) -> tuple[RequestHeader, Payload]:
        key = self.chance.choice(SERVED)
        api = API_TABLE[key]
        version = self.chance.randint(
            max(api.min_version, 3 if key == ApiKey.PRODUCE else 0), api.max_version
        )
        header = RequestHeader(
            key, version, self.chance.randrange(1 << 31), self.chance.choice([None, "", "fuzz"])
        )
        return header, self.message(api.request, version)

    def frame(self) -> bytes:
        header, message = self.request()
        return encode_request(header, message)

    def message(self, kind: type[M], version: int) -> M:
        return kind(
            **{field.name: self.value(field, version) for field in kind.FIELDS if field.present_in(version)}
        )

    def value(self, field: Field, version: int) -> object:
        if field.nullable_in(version) and self.chance.random() < 0.2:
            return None
        if field.array:
            return [self.single(field, version) for _ in range(self.chance.choice([0, 1, 1, 1, 2, 3]))]
        return self.single(field, version)

    def single(self, field: Field, version: int) -> object:
        chance = self.chance
        if not isinstance(field.type, str):
            return self.message(field.type, version)
        match field.type:
            case "bool":
                return chance.random() < 0.5
            case "string":
                return chance.choice(STRINGS)
            case "uuid":
                return chance.choice(self.topic_ids)
            case "bytes" | "records":
                return self.batch() if chance.random() < 0.8 else chance.randbytes(chance.randrange(200))
            case "float64":
                return chance.choice([0.0, -1.5, float("inf"), float("nan")])
        bits = LIMITS[field.type]
        low = 0 if field.type.startswith("u") else -(1 << bits)
        number = chance.choice([*NUMBERS, low, (1 << bits) - 1, chance.randrange(low, 1 << bits)])
        return number if low <= number < 1 << bits else 0

    def batch(self) -> bytes:
        """A batch with a right checksum and, perhaps, something wrong under it."""
        chance = self.chance
        records = [
            Record(
                n, chance.choice([0, 1, 1_700_000_000_000, 1 << 61]), chance.choice([None, b"k"]), b"v" * 20
            )
            for n in range(chance.randrange(1, 5))
        ]
        batch = bytearray(
            encode_batch(
                records,
                codec=chance.choice(list(Codec)),
                producer_id=chance.choice([-1, 0, 1, 1 << 40]),
                producer_epoch=chance.choice([-1, 0, 3]),
                base_sequence=chance.choice([-1, 0, 5, (1 << 31) - 1]),
                transactional=chance.random() < 0.1,
                control=chance.random() < 0.05,
            )
        )
        for _ in range(chance.choice([0, 0, 1, 2, 5])):
            at = chance.randrange(16, len(batch)) if chance.random() < 0.7 else chance.randrange(HEADER_SIZE)
            batch[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, batch[at] ^ (1 << chance.randrange(8))])
        if chance.random() < 0.9:
            write_crc(batch, 0, len(batch))
        return bytes(batch[: chance.randrange(len(batch))] if chance.random() < 0.1 else batch)

    def bent(self) -> bytes:
        """A frame with a right size and wrong content."""
        chance = self.chance
        body = bytearray(self.frame()[4:])
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(body))
            match chance.randrange(5):
                case 0:
                    body[at] ^= 1 << chance.randrange(8)
                case 1:
                    body[at : at + 4] = b"\x7f\xff\xff\xff"
                case 2:
                    body[at : at + 5] = b"\xff\xff\xff\xff\x0f"
                case 3:
                    del body[at + 1 :]
                case 4:
                    body[at:at] = chance.randbytes(chance.randrange(1, 9))
        return struct.pack(">i", len(body)) + bytes(body)


@pytest.fixture
def broker(broker_at: StartBroker) -> BrokerProcess:
    broker = broker_at(auto_create_topics_enable="false", log_cleaner_enable="false").start()
    admin = Admin(broker.bootstrap)
    admin.create_topic("kept")
    admin.create_topic("plain", 2)
    admin.create_topic("stamped", 1, message_timestamp_type="LogAppendTime")
    admin.create_topic("zipped", 1, compression_type="zstd")
    admin.create_topic("compacted", 1, cleanup_policy="compact")
    return broker


def throw(broker: BrokerProcess, frames: Iterator[bytes]) -> int:
    """Send all frames, a few per connection; gives how many answers there were."""
    answers = 0
    done = False
    while not done:
        sock = socket.create_connection((broker.host, broker.port), timeout=60)
        try:
            for _ in range(PER_CONNECTION):
                frame = next(frames, None)
                if frame is None:
                    done = True
                    break
                sock.sendall(frame)
                answers += answered(sock)
        except ConnectionError:
            pass
        finally:
            sock.close()
    return answers


def answered(sock: socket.socket) -> bool:
    """Whether an answer came at once; what waits for records is not waited for."""
    sock.settimeout(0.02)
    try:
        data = sock.recv(1 << 20)
    except TimeoutError:
        return False
    if not data:
        raise ConnectionError("closed")
    return True


def assert_well(broker: BrokerProcess, memory_before: int) -> None:
    assert broker.alive
    writer = Writer(broker.bootstrap, "kept")
    first = writer.write([b"0"])
    for number in range(1, 20):
        assert writer.write([b"%d" % number]) == first + number
    assert values(read_from(broker.bootstrap, "kept", 0, first)) == writer.written
    log = broker.log
    assert "Traceback" not in log
    assert "this is a bug" not in log
    assert broker.rss_bytes < memory_before + SLACK_BYTES


def fuzz_for(broker: BrokerProcess, chance: random.Random) -> Fuzz:
    topics = Admin(broker.bootstrap).topics()
    return Fuzz(chance, [topic_id for name, (topic_id, _) in topics.items() if name != "kept"])


@pytest.mark.parametrize("kind", ["frame", "bent"])
def test_frames_full_of_nonsense_harm_nobody(broker: BrokerProcess, chance: random.Random, kind: str) -> None:
    fuzz = fuzz_for(broker, chance)
    make: Callable[[], bytes] = getattr(fuzz, kind)
    memory = broker.rss_bytes
    answers = throw(broker, (make() for _ in range(FRAMES)))
    assert answers > FRAMES // 50
    assert_well(broker, memory)
    assert broker.stop() == 0
    broker.start()
    assert "kept" in Admin(broker.bootstrap).topics()


def test_batches_full_of_nonsense_harm_nobody(broker: BrokerProcess, chance: random.Random) -> None:
    fuzz = fuzz_for(broker, chance)
    memory = broker.rss_bytes
    session = Session(broker.bootstrap)
    codes: set[int] = set()
    for _ in range(FRAMES):
        data = produce.PartitionProduceData(index=0, records=fuzz.batch())
        topic = produce.TopicProduceData(name=chance.choice(TOPICS[:4]), partition_data=[data])
        request = produce.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
        answer = session.ask(chance.randint(3, 12), request, produce.ProduceResponse)
        codes.add(answer.responses[0].partition_responses[0].error_code)
    assert 0 in codes
    assert len(codes) > 3
    assert -1 not in codes, "something was answered as a bug"
    assert_well(broker, memory)
    broker.kill()
    broker.start()
    assert_well(broker, memory)


def test_batches_that_unpack_to_gigabytes_cost_bounded_memory(broker: BrokerProcess) -> None:
    """A topic with a codec of its own has the broker unpack what it is sent."""
    memory = broker.rss_bytes
    session = Session(broker.bootstrap)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
        batch = encode_batch([Record(0, 1_700_000_000_000, None, bytes(150 * MB))], codec=codec)
        data = produce.PartitionProduceData(index=0, records=batch)
        topic = produce.TopicProduceData(name="zipped", partition_data=[data])
        request = produce.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
        answer = session.ask(11, request, produce.ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code != -1
    wait_until("memory to be given back", lambda: broker.rss_bytes < memory + SLACK_BYTES)
    assert_well(broker, memory)
