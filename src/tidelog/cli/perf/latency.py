"""``tidelog perf latency``: how long one record takes from a producer to a consumer, as EndToEndLatency does.

One record is sent, acknowledged and read before the next: nothing queues, nothing is batched.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.connect import client_options, parse_assignments
from tidelog.cli.failure import Failure, WrongUsage
from tidelog.cli.output import examples, print_json, remark
from tidelog.cli.perf.figures import latency_json, latency_lines
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, JsonOutput, NumRecords, grouped
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.consumer.async_consumer import AsyncConsumer
    from tidelog.client.producer.async_producer import AsyncProducer

EPILOG = examples(
    "tidelog perf latency probe --num-records 10000",
    "tidelog perf latency probe -n 1000 --acks all --record-size 1000 --json",
)

_ACKS = ("1", "all", "-1")
_LOST_S = 60.0
_METADATA_S = 30.0
_LINE_EVERY = 1000


@grouped
def command(
    topic: Annotated[
        str,
        typer.Argument(metavar="TOPIC", help="A topic that no other producer writes to.", show_default=False),
    ],
    num_records: NumRecords = 10_000,
    record_size: Annotated[
        int, typer.Option("--record-size", min=1, help="The size of a record value in bytes.")
    ] = 100,
    acks: Annotated[
        str, typer.Option("--acks", metavar="1|all", help="The acknowledgement to wait for.")
    ] = "1",
    client_property: Annotated[
        list[str] | None,
        typer.Option(
            "--client-property",
            metavar="NAME=VALUE",
            help="A client option for producer and consumer; may be repeated.",
        ),
    ] = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> int:
    """Send records one by one and wait for each to be read again; a missing topic is made. Ctrl-C ends it."""
    if acks not in _ACKS:
        raise WrongUsage(f"invalid --acks {acks!r}: latency requires an acknowledgement, 1 or all")
    properties = dict(parse_assignments(client_property, "--client-property"))

    def options(own: dict[str, object]) -> dict[str, object]:
        return client_options(connection, own, properties, {})

    producing = options({"linger.ms": 0, "acks": acks})
    consuming = options({"fetch.max.wait.ms": 0, "auto.offset.reset": "latest"})
    # A group of a file written for an application is that one's: nothing is committed there.
    consuming.pop("group.id", None)
    consuming["enable.auto.commit"] = False
    latencies_ms: list[float] = []
    run = _run(topic, num_records, record_size, producing, consuming, latencies_ms, quiet=json)
    interrupted = asyncio.run(run)
    if json:
        print_json(latency_json(latencies_ms))
    elif latencies_ms:
        for line in latency_lines(latencies_ms):
            print(line)
    return 130 if interrupted else 0


async def _run(
    topic: str,
    count: int,
    size: int,
    producing: dict[str, object],
    consuming: dict[str, object],
    latencies_ms: list[float],
    *,
    quiet: bool,
) -> bool:
    """Measure; whether somebody has interrupted it."""
    from tidelog.client.consumer.async_consumer import AsyncConsumer
    from tidelog.client.producer.async_producer import AsyncProducer

    stop = asyncio.Event()
    async with AsyncConsumer(consuming) as consumer, AsyncExitStack() as stack:
        # What is out of reach is said at once, and not a second time by a producer in the background.
        await consumer.cluster.connect()
        producer = await stack.enter_async_context(AsyncProducer(producing))
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
        await _place_at_end(consumer, topic)
        letters = random.Random(0)
        for number in range(count):
            if stop.is_set():
                return True
            value = bytes([letters.randrange(26) + 65]) * size
            latency_ms = await _round_trip(producer, consumer, topic, value)
            latencies_ms.append(latency_ms)
            if number % _LINE_EVERY == 0 and not quiet:
                print(f"{number}\t{latency_ms:.6f}", flush=True)
    return False


async def _place_at_end(consumer: AsyncConsumer, topic: str) -> None:
    """Read all partitions from their ends on; a topic that does not exist is made."""
    from tidelog.client.admin.async_admin import AsyncAdmin
    from tidelog.client.resources import NewTopic

    admin = AsyncAdmin.of(consumer.cluster)
    described = (await admin.describe_topics([topic]))[topic]
    if described.error is not None:
        if described.error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise described.error
        for result in await admin.create_topics([NewTopic(topic, 1)]):
            result.raise_for_error()
        remark(f"created topic {topic} with 1 partition")
    partitions = [
        TopicPartition(topic, each.partition) for each in await consumer.partitions_for(topic, _METADATA_S)
    ]
    consumer.assign(partitions)
    consumer.seek_to_end(partitions)
    for each in partitions:
        await consumer.position(each, _METADATA_S)


async def _round_trip(producer: AsyncProducer, consumer: AsyncConsumer, topic: str, value: bytes) -> float:
    """How many milliseconds a record takes until it is read."""
    began_s = time.perf_counter()
    await producer.send(topic, value)
    records = await consumer.poll(_LOST_S)
    latency_ms = (time.perf_counter() - began_s) * 1000
    if not records:
        raise Failure(f"a record written to {topic} was not read within {_LOST_S:.0f} s")
    if len(records) > 1 or records[0].value != value:
        raise Failure(f"another producer writes to {topic}: use a dedicated topic")
    return latency_ms
