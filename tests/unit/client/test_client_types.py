"""Clients as type checkers see them: mypy runs over programs as users write them."""

from __future__ import annotations

import re
from pathlib import Path

from mypy import api

PROGRAM = """
import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog import (
    Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, ConsumerOptions, ConsumerRecord, MsgspecDeserializer,
    Producer, ProducerRecord, StreamConsumer,
)
from tidelog.client.serialization import JsonDeserializer, JsonSerializer, StringDeserializer, StringSerializer

@dataclass
class Order:
    id: int

def read_order(data: bytes) -> Order:
    return Order(int(data))

def write_order(order: Order) -> bytes:
    return b"%d" % order.id

class Upper:
    def deserialize(self, topic: str, data: bytes | None) -> str | None:
        return None if data is None else data.decode().upper()

BROKER = {"bootstrap.servers": "127.0.0.1:1"}
CONFIG: ConsumerOptions = {"bootstrap_servers": "127.0.0.1:1", "group_id": "g"}
BAD: ConsumerOptions = {"grup_id": "g"}  # error: Extra key "grup_id" for TypedDict "ConsumerOptions[bytes, bytes]"

# What the constructors infer
reveal_type(Consumer(bootstrap_servers="a:1"))  # reveals: Consumer[bytes, bytes]
reveal_type(Consumer(BROKER, group_id="g"))  # reveals: Consumer[bytes, bytes]
reveal_type(Consumer(CONFIG))  # reveals: Consumer[bytes, bytes]
reveal_type(Consumer(**CONFIG))  # reveals: Consumer[bytes, bytes]
reveal_type(Consumer({"linger.ms": 5}, value_deserializer=read_order))  # reveals: Consumer[bytes, Order]
reveal_type(Consumer(value_deserializer=json.loads))  # reveals: Consumer[bytes, Any]
reveal_type(Consumer(value_deserializer=str))  # reveals: Consumer[bytes, str]
reveal_type(Consumer(value_deserializer="json"))  # reveals: Consumer[bytes, Any]
reveal_type(Consumer(value_deserializer="str", key_deserializer="str"))  # reveals: Consumer[Any, Any]
reveal_type(Consumer(value_deserializer=Upper()))  # reveals: Consumer[bytes, str]
reveal_type(Consumer(value_deserializer=Upper))  # reveals: Consumer[bytes, str]
reveal_type(Consumer(value_deserializer=lambda data: data.decode()))  # reveals: Consumer[bytes, str]
reveal_type(Consumer(value_deserializer=MsgspecDeserializer(Order)))  # reveals: Consumer[bytes, Order]
reveal_type(Consumer(value_deserializer=MsgspecDeserializer()))  # reveals: Consumer[bytes, Any]
reveal_type(Consumer(key_deserializer=StringDeserializer()))  # reveals: Consumer[str, bytes]
reveal_type(Consumer(value_deserializer=JsonDeserializer()))  # reveals: Consumer[bytes, Any]
reveal_type(AsyncConsumer(value_deserializer=read_order))  # reveals: AsyncConsumer[bytes, Order]
reveal_type(Producer(bootstrap_servers="a:1"))  # reveals: Producer[bytes, bytes]
reveal_type(Producer(value_serializer=write_order))  # reveals: Producer[bytes, Order]
reveal_type(Producer(value_serializer=JsonSerializer()))  # reveals: Producer[bytes, Any]
reveal_type(Producer(value_serializer=StringSerializer()))  # reveals: Producer[bytes, str]
reveal_type(Producer(value_serializer=str.encode))  # reveals: Producer[bytes, str]
reveal_type(AsyncProducer(value_serializer="json"))  # reveals: AsyncProducer[bytes, Any]

# What records have
consumer = Consumer(BROKER, value_deserializer=read_order)
for record in consumer:
    reveal_type(record)  # reveals: ConsumerRecord[bytes, Order]
    reveal_type(record.value.id)  # reveals: int
    reveal_type(record.key)  # reveals: bytes | None
    reveal_type(record.offset)  # reveals: int
    record.vlaue  # error: "ConsumerRecord[bytes, Order]" has no attribute "vlaue"; maybe "value"?
reveal_type(consumer.poll())  # reveals: list[ConsumerRecord[bytes, Order]]
reveal_type(consumer.records(timeout=1))  # reveals: Iterator[ConsumerRecord[bytes, Order]]
with Consumer(BROKER, value_deserializer=read_order) as opened:
    reveal_type(opened)  # reveals: Consumer[bytes, Order]

async def read() -> None:
    async with AsyncConsumer(BROKER, value_deserializer=read_order) as reader:
        async for each in reader:
            reveal_type(each.value)  # reveals: Order
        reveal_type(await reader.poll())  # reveals: list[ConsumerRecord[bytes, Order]]
        reveal_type(reader.records(1))  # reveals: AsyncIterator[ConsumerRecord[bytes, Order]]
        reader.pol()  # error: "AsyncConsumer[bytes, Order]" has no attribute "pol"; maybe "poll"?

# What producers take
Producer(BROKER).send("t", b"v", key=b"k")
Producer(BROKER).send("t", None)
Producer(BROKER).send("t", "text")  # error: Argument 2 to "send" of "Producer" has incompatible type "str"; expected "bytes | None"
orders = Producer(value_serializer=write_order)
orders.send("t", Order(1))
orders.send(ProducerRecord("t", Order(1), b"k"))
orders.send("t", b"1")  # error: Argument 2 to "send" of "Producer" has incompatible type "bytes"; expected "Order | None"
orders.send(ProducerRecord("t", "text"))  # error: Argument 2 to "ProducerRecord" has incompatible type "str"; expected "Order | None"
Producer(BROKER, value_serializer="json").send("t", {"id": 1})
typed: Producer[bytes, dict[str, int]] = Producer(value_serializer=lambda value: json.dumps(value).encode())
typed.send("t", {"id": 1})
orders.produce("t", Order(1))  # error: "Producer[bytes, Order]" has no attribute "produce"

# Keywords
Consumer(group="g")  # error: Unexpected keyword argument "group" for "Consumer"; did you mean "group_id"?
Consumer(grup_id="g")  # error: Unexpected keyword argument "grup_id" for "Consumer"; did you mean "group_id"?
AsyncConsumer(BROKER, grup_id="g")  # error: Unexpected keyword argument "grup_id" for "AsyncConsumer"; did you mean "group_id"?
Producer(linger="5")  # error: Unexpected keyword argument "linger" for "Producer"; did you mean "linger_ms"?
Producer(linger_ms="5")  # error: Argument "linger_ms" to "Producer" has incompatible type "str"; expected "int | None"
Producer(acks="most")  # error: Argument "acks" to "Producer" has incompatible type "Literal['most']"; expected "Literal['all', '-1', '0', '1', -1, 0, 1] | None"
Producer(acks=1, compression_type="zstd", ssl_truststore_location=Path("ca.pem"), security_protocol="ssl")
Admin(boostrap_servers="a:1")  # error: Unexpected keyword argument "boostrap_servers" for "Admin"; did you mean "bootstrap_servers"?
AsyncAdmin(bootstrap_servers=["a:1", "b:1"], retries=3)
Consumer("orders")  # error: Argument 1 to "Consumer" has incompatible type "str"; expected "Mapping[str, object] | None"
StreamConsumer({"t": 1}, print, BROKER, grup_id="g")  # error: Unexpected keyword argument "grup_id" for "StreamConsumer"; did you mean "group_id"?
given: dict[str, Any] = {"group_id": "g"}
Consumer(BROKER, **given)

# Annotations
def any_record(record: ConsumerRecord) -> None:
    reveal_type(record.value)  # reveals: Any

def bytes_only(of: Consumer) -> None:
    reveal_type(of.poll()[0].value)  # reveals: bytes

bytes_only(Consumer(BROKER))
bytes_only(consumer)  # error: Argument 1 to "bytes_only" has incompatible type "Consumer[bytes, Order]"; expected "Consumer[bytes, bytes]"
any_record(consumer.poll()[0])
tombstones: Consumer[bytes, Order | None] = Consumer(value_deserializer=read_order)
plain: Consumer[bytes, bytes | None] = Consumer(BROKER)
named: Consumer[str, Order] = Consumer(key_deserializer="str", value_deserializer="json")
alias = Consumer[str, Order]
reveal_type(Admin(BROKER).describe_topics(["t"])["t"].partitions)  # reveals: tuple[PartitionMetadata, ...]
"""  # noqa: E501


def test_mypy_sees_keys_values_and_options_of_the_clients(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    found = _complaints(program, tmp_path / "cache")
    wanted = _expectations()
    lines = PROGRAM.splitlines()
    for number in sorted(found.keys() | wanted.keys()):
        assert found.get(number, []) == wanted.get(number, []), lines[number - 1]


def _expectations() -> dict[int, list[str]]:
    found = {}
    for number, line in enumerate(PROGRAM.splitlines(), 1):
        if match := re.search(r"# (reveals|error): (.*)$", line):
            found[number] = [match[2]]
    return found


def _complaints(program: Path, cache: Path) -> dict[int, list[str]]:
    """What mypy reveals and refuses, by line; names without their modules."""
    root = Path(__file__).resolve().parents[3]
    out, err, _ = api.run(
        ["--strict", "--config-file", str(root / "pyproject.toml"), "--cache-dir", str(cache), str(program)]
    )
    assert not err, err
    found: dict[int, list[str]] = {}
    for line in out.splitlines():
        match = re.match(rf"{re.escape(str(program))}:(\d+): (error|note): (.*?)(?:  \[[a-z-]+\])?$", line)
        if match is None:
            assert line.startswith(("Found", "Success")), line
            continue
        text = re.sub(r"\b(?:\w+\.)+(?=\w)", "", match[3])
        if revealed := re.fullmatch(r'Revealed type is "(.*)"', text):
            text = revealed[1]
        elif match[2] == "note":
            continue
        found.setdefault(int(match[1]), []).append(text)
    return found
