"""Exactly once with the Java client: workers of 4.x (transaction version 2) and 3.9, killed with the broker.

One run mixes both clients, and with librdkafka's worker all three generations of the protocol meet in one
group. With TIDELOG_COMPAT_ORACLE=1 the broker is Apache Kafka too.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from foreign import toolchain
from foreign.apache_kafka import ApacheKafka
from foreign.broker_process import Tidelog
from tests.compat.conftest import BROKERS
from tests.rigs.exactly_once.brokers import TRANSACTION_OPTIONS
from tests.rigs.exactly_once.loop import Command, Loop, librdkafka
from tests.rigs.group_members.brokers import GROUP_OPTIONS

EVENTS = 4
RECORDS = 400


def java(jars: str, protocol: str = "classic") -> Callable[[], Command]:
    def make() -> Command:
        command = toolchain.java_driver(jars)[:-1]
        return lambda address, name: [*command, "ExactlyOnce", address, name, protocol]

    return make


TEAMS: dict[str, Sequence[Callable[[], Command]]] = {
    "java-4": (java("client-4"), java("client-4")),
    "java-3.9": (java("kafka-3.9"), java("kafka-3.9")),
    "java-4-consumer-protocol": (java("client-4", "consumer"), java("client-4", "consumer")),
    "mixed": (java("client-4"), java("kafka-3.9"), lambda: librdkafka),
}


@pytest.mark.parametrize("team", TEAMS)
@pytest.mark.parametrize("kind", BROKERS)
def test_output_is_input_whoever_is_killed(tmp_path: Path, kind: str, team: str) -> None:
    try:
        commands = [make() for make in TEAMS[team]]
        broker = {"tidelog": Tidelog, "apache": ApacheKafka}[kind](
            tmp_path, {**GROUP_OPTIONS, **TRANSACTION_OPTIONS}
        )
        broker.start()
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    loop = Loop(broker, tmp_path, random.Random(zlib.crc32(team.encode())), RECORDS, commands)
    try:
        loop.run(EVENTS)
        print(loop.happened)
        loop.check()
    finally:
        loop.close()
        broker.kill()
