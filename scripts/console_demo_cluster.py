"""A small cluster with traffic, and a console over it: what the pictures of the console are taken of.

One broker with access rules, users, quotas and a metrics listener; topics with orders and clicks, a producer
with transactions, a group that keeps up and one that falls behind, dead letters, checkpoints as Spark writes
them. Everything is in a temporary directory and ends with the ``with``.
"""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidelog import Consumer, Producer
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.quotas import QuotaAlteration
from tidelog.client.admin.scram_users import ScramUpsertion
from tidelog.security.acls.model import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tidelog.testing import LocalBroker, broker

CLUSTER = "demo"
TOPICS = {
    "orders": 6,
    "payments": 3,
    "clicks": 4,
    "orders_dead_letters": 1,
    "inventory.warehouse-movements.replenishment.v2": 2,
}
_CITIES = ("Shanghai", "Hamburg", "São Paulo", "Lagos", "東京", "Oslo")
_RECORDS_PER_TICK = 40
_TICK_S = 0.2


@contextmanager
def demo_console(seconds: float) -> Iterator[str]:
    """The address of a console over a cluster that had traffic for some seconds, and has still."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        metrics = free.getsockname()[1]
    options = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "metrics.listeners": f"http://127.0.0.1:{metrics}",
    }
    with tempfile.TemporaryDirectory() as folder, broker(topics=TOPICS, options=options) as running:
        root = Path(folder)
        _write_access(running.bootstrap_servers)
        _write_checkpoints(root / "checkpoints")
        ended = threading.Event()
        works = [
            threading.Thread(target=work, args=(running, ended))
            for work in (_produce, _produce_in_transactions, _ship, _bill)
        ]
        for each in works:
            each.start()
        try:
            with _console(running, root) as url:
                time.sleep(seconds)
                yield url
        finally:
            ended.set()
            for each in works:
                each.join()


@contextmanager
def _console(running: LocalBroker, root: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "tidelog", "console", "--listen", "127.0.0.1:0", "--refresh", "1"]
    command += ["--cluster", f"{CLUSTER}={running.bootstrap_servers}", "--data-dir", str(root / "console")]
    command += ["--checkpoint", str(root / "checkpoints"), "--pipelines", str(root / "pipelines")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if " at " not in line:
                raise SystemExit("the console does not start: see what it says above")
            yield line.rpartition(" at ")[2].strip()
        finally:
            process.terminate()


def _order(number: int) -> bytes:
    order = {
        "id": number,
        "price": random.randrange(10, 500),
        "currency": random.choice(("EUR", "CNY", "BRL")),
        "customer": {"name": f"customer {number % 97}", "city": random.choice(_CITIES)},
        "items": [{"sku": f"A-{random.randrange(1000)}", "n": random.randrange(1, 5)} for _ in range(2)],
    }
    return json.dumps(order, ensure_ascii=False).encode()


def _produce(running: LocalBroker, ended: threading.Event) -> None:
    number = 0
    with Producer(bootstrap_servers=running.bootstrap_servers, client_id="shop") as producer:
        while not ended.wait(_TICK_S):
            for _ in range(_RECORDS_PER_TICK + random.randrange(20)):
                number += 1
                headers = [("trace", f"t-{number:08x}".encode())]
                producer.send("orders", _order(number), key=f"o-{number % 97}".encode(), headers=headers)
                producer.send("clicks", b'{"page": "/basket"}')
            if number % 7 == 0:
                letter = [("topic", b"orders"), ("reason", b"the price is no number"), ("partition", b"0")]
                producer.send("orders_dead_letters", _order(number), headers=letter)


def _produce_in_transactions(running: LocalBroker, ended: threading.Event) -> None:
    options = {"bootstrap.servers": running.bootstrap_servers, "transactional.id": "payments-service"}
    with Producer(options) as producer:
        producer.init_transactions()
        while not ended.wait(_TICK_S):
            with producer.transaction():
                for number in range(8):
                    producer.send("payments", json.dumps({"order": number, "paid": True}).encode())


def _ship(running: LocalBroker, ended: threading.Event) -> None:
    _read(running, ended, "shipping", "orders", 30)


def _bill(running: LocalBroker, ended: threading.Event) -> None:
    _read(running, ended, "billing", "payments", 1000)


def _read(running: LocalBroker, ended: threading.Event, group: str, topic: str, most: int) -> None:
    options = {"bootstrap.servers": running.bootstrap_servers, "group.id": group, "client.id": f"{group}-1"}
    with Consumer({**options, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        while not ended.wait(_TICK_S):
            if consumer.poll(0.1, most):
                consumer.commit()


def _write_access(bootstrap: str) -> None:
    rules = (
        ("User:shop", ResourceType.TOPIC, "orders", PatternType.PREFIXED, Operation.WRITE, Permission.ALLOW),
        (
            "User:shipping",
            ResourceType.TOPIC,
            "orders",
            PatternType.LITERAL,
            Operation.READ,
            Permission.ALLOW,
        ),
        (
            "User:shipping",
            ResourceType.GROUP,
            "shipping",
            PatternType.LITERAL,
            Operation.READ,
            Permission.ALLOW,
        ),
        ("User:intern", ResourceType.TOPIC, "payments", PatternType.LITERAL, Operation.ALL, Permission.DENY),
    )
    with Admin(bootstrap_servers=bootstrap) as admin:
        bindings = [
            AclBinding(ResourcePattern(kind, name, pattern), AclEntry(who, "*", operation, permission))
            for who, kind, name, pattern, operation, permission in rules
        ]
        users = [ScramUpsertion(each, f"{each}-secret") for each in ("shop", "shipping", "intern")]
        quotas = [QuotaAlteration({"user": "intern"}, {"producer_byte_rate": 1_048_576.0})]
        for results in (
            admin.create_acls(bindings),
            admin.alter_user_scram_credentials(users),
            admin.alter_client_quotas(quotas),
        ):
            for result in results:
                result.raise_for_error()


def _write_checkpoints(root: Path) -> None:
    for name, topics in (
        ("orders-by-city", {"orders": {str(each): 50 for each in range(6)}}),
        ("click-sessions", {"clicks": {str(each): 120 for each in range(4)}}),
    ):
        path = root / name
        for folder in ("offsets", "commits", "state"):
            (path / folder).mkdir(parents=True)
        head = {"batchWatermarkMs": time.time_ns() // 1_000_000 - 30_000, "batchTimestampMs": 1, "conf": {}}
        (path / "offsets" / "41").write_text("\n".join(("v1", json.dumps(head), json.dumps(topics))))
        (path / "commits" / "41").write_text('v1\n{"nextBatchWatermarkMs":0}')
        (path / "metadata").write_text(json.dumps({"id": f"id-of-{name}"}))
