"""The examples in the docstrings of the clients' methods run, on a broker, as they are shown."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import tidelog
from tidelog import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    KafkaError,
    Producer,
    TopicPartition,
)
from tidelog.testing import LocalBroker, broker

OPTIONS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
# Delegation tokens need a login, and moving a replica a second directory: here they are refused.
REFUSED = re.compile(r".*delegation_token.*|alter_replica_log_dirs")
# Brokers give ids to clients only where an administrator has subscribed to metrics.
NEEDS_TELEMETRY = "client_instance_id"
NO_GROUP_MEMBER = ("subscribe", "unsubscribe", "subscription", "commit_nowait")


@contextmanager
def filled_broker() -> Iterator[LocalBroker]:
    with broker(topics={"orders": 1}, options=OPTIONS) as running:
        with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            for number in range(3):
                producer.send("orders", b"cup %d" % number)
        yield running


@pytest.fixture(scope="module")
def running() -> Iterator[LocalBroker]:
    with filled_broker() as running:
        yield running


@pytest.fixture(scope="module")
def running_for_asyncio() -> Iterator[LocalBroker]:
    """Another one, which the other examples have not changed."""
    with filled_broker() as running:
        yield running


def examples(client: type) -> list[Any]:
    """Every public method of ``client`` that has an example, with it."""
    found = []
    for name, member in vars(client).items():
        if name.startswith("_") or name == NEEDS_TELEMETRY or not callable(member):
            continue
        _, _, example = (
            inspect.cleandoc(member.__doc__ or "")
            .replace("\nExample::\n", "\nExample:\n")
            .partition("\nExample:\n")
        )
        found.append(pytest.param(name, textwrap.dedent(example), id=name))
    return found


def names() -> dict[str, Any]:
    return {name: getattr(tidelog, name) for name in dir(tidelog) if not name.startswith("_")}


@pytest.mark.parametrize(("method", "example"), examples(Consumer))
def test_examples_of_the_consumer(running: LocalBroker, method: str, example: str) -> None:
    with Consumer(
        bootstrap_servers=running.bootstrap_servers, group_id=f"of-{method}", auto_offset_reset="earliest"
    ) as consumer:
        if method not in NO_GROUP_MEMBER:
            consumer.assign([TopicPartition("orders", 0)])
        elif method == "commit_nowait":
            consumer.assign([TopicPartition("orders", 0)])
            consumer.poll(30)
        exec(example, {**names(), "consumer": consumer})


@pytest.mark.parametrize(("method", "example"), examples(Producer))
def test_examples_of_the_producer(running: LocalBroker, method: str, example: str) -> None:
    transactional_id = f"of-{method}" if "transaction" in method else None
    servers = running.bootstrap_servers
    with Producer(bootstrap_servers=servers, transactional_id=transactional_id) as producer:
        if transactional_id and method != "init_transactions":
            producer.init_transactions()
        exec(example, {**names(), "producer": producer})
        if method == "prepare_transaction":
            producer.close(0)


@pytest.mark.parametrize(("method", "example"), examples(Admin))
def test_examples_of_the_admin_client(running: LocalBroker, method: str, example: str) -> None:
    with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
        admin.delete_topics(["bills", "old"])
        try:
            exec(example, {**names(), "admin": admin})
        except KafkaError:
            assert REFUSED.fullmatch(method)


def _run(example: str, given: dict[str, Any]) -> Any:
    code = compile(example, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return eval(code, {**names(), **given})


@pytest.mark.parametrize(("method", "example"), examples(AsyncConsumer))
def test_examples_of_the_asyncio_consumer(
    running_for_asyncio: LocalBroker, method: str, example: str
) -> None:
    async def main() -> None:
        async with AsyncConsumer(
            bootstrap_servers=running_for_asyncio.bootstrap_servers,
            group_id=f"of-asyncio-{method}",
            auto_offset_reset="earliest",
        ) as consumer:
            if method not in NO_GROUP_MEMBER:
                consumer.assign([TopicPartition("orders", 0)])
            if (ran := _run(example, {"consumer": consumer})) is not None:
                await ran

    asyncio.run(main())


@pytest.mark.parametrize(("method", "example"), examples(AsyncProducer))
def test_examples_of_the_asyncio_producer(
    running_for_asyncio: LocalBroker, method: str, example: str
) -> None:
    transactional_id = f"of-asyncio-{method}" if "transaction" in method else None

    async def main() -> None:
        producer = AsyncProducer(
            bootstrap_servers=running_for_asyncio.bootstrap_servers, transactional_id=transactional_id
        )
        if transactional_id and method != "init_transactions":
            await producer.init_transactions()
        if (ran := _run(example, {"producer": producer})) is not None:
            await ran
        await producer.close(0 if method == "prepare_transaction" else None)

    asyncio.run(main())


@pytest.mark.parametrize(("method", "example"), examples(AsyncAdmin))
def test_examples_of_the_asyncio_admin_client(
    running_for_asyncio: LocalBroker, method: str, example: str
) -> None:
    async def main() -> None:
        consumer = AsyncConsumer(bootstrap_servers=running_for_asyncio.bootstrap_servers)
        async with consumer, AsyncAdmin(bootstrap_servers=running_for_asyncio.bootstrap_servers) as admin:
            await admin.delete_topics(["bills", "old"])
            try:
                if (ran := _run(example, {"admin": admin, "consumer": consumer})) is not None:
                    await ran
            except KafkaError:
                assert REFUSED.fullmatch(method)

    asyncio.run(main())
