"""Docstrings of public classes and methods have arguments, results, exceptions and an example."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

import tidelog
import tidelog.client
import tidelog.security.acls
import tidelog.testing

CLIENTS = (
    tidelog.Admin,
    tidelog.AsyncAdmin,
    tidelog.AsyncConsumer,
    tidelog.AsyncProducer,
    tidelog.Consumer,
    tidelog.Producer,
    tidelog.StreamConsumer,
    tidelog.testing.LocalBroker,
)
# They ask no broker, and fail for no reason of their own.
NEVER_RAISE = {
    "abort_open_transaction", "assignment", "close", "drain", "group_metadata", "health", "metrics", "of",
    "ongoing_error", "paused", "stop", "subscription", "wakeup",
}  # fmt: skip
# What errors mean is said in one sentence, and generated types say it by key.
NO_EXAMPLE = {"AdminOptions", "ConsumerOptions", "ProducerOptions"}
_SECTION = re.compile(r"^(Args|Returns|Raises|Example)::?$", re.M)


def sections(member: Any) -> dict[str, str]:
    """A docstring's parts by their names; the first one is called "" and says what it is."""
    parts = _SECTION.split(inspect.cleandoc(member.__doc__ or ""))
    return dict(zip(["", *parts[1::2]], parts[::2], strict=True))


def public_methods() -> Iterator[Any]:
    for client in CLIENTS:
        for name, member in vars(client).items():
            if not name.startswith("_") and callable(member):
                yield pytest.param(member, id=f"{client.__name__}.{name}")
    yield pytest.param(tidelog.partition_for_key, id="partition_for_key")
    yield pytest.param(tidelog.testing.broker, id="broker")
    yield pytest.param(tidelog.testing.async_broker, id="async_broker")


def public_classes() -> Iterator[Any]:
    for module in (tidelog, tidelog.security.acls, tidelog.testing):
        names = tidelog.client.EXPORTS if module is tidelog else vars(module)["__all__"]
        for name in names:
            member = getattr(module, name)
            if isinstance(member, type) and not (issubclass(member, Exception) or name in NO_EXAMPLE):
                yield pytest.param(member, id=f"{module.__name__}.{name}")


@pytest.mark.parametrize("method", list(public_methods()))
def test_a_public_method_documents_arguments_result_exceptions_and_an_example(method: Any) -> None:
    found = sections(method)
    signature = inspect.signature(method)
    assert found[""].strip()
    for name in signature.parameters.keys() - {"self", "cls"}:
        assert re.search(rf"^    {name}: \S", found["Args"], re.M), f"argument {name}"
    if signature.return_annotation not in ("None", None):
        assert found["Returns"].strip()
    if method.__name__ not in NEVER_RAISE:
        assert re.search(r"^    \w+: \S", found["Raises"], re.M)
    _check_example(found)


@pytest.mark.parametrize("documented", list(public_classes()))
def test_a_public_class_documents_an_example(documented: type) -> None:
    found = sections(documented)
    assert found[""].strip()
    _check_example(found)


def _check_example(found: dict[str, str]) -> None:
    code = textwrap.dedent(found["Example"]).strip()
    assert code
    compile(code, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_no_documentation_of_a_synchronous_client_awaits() -> None:
    for client in (tidelog.Admin, tidelog.Consumer, tidelog.Producer):
        for member in (client, *vars(client).values()):
            assert "await " not in (getattr(member, "__doc__", None) or "")


def test_help_on_the_send_of_a_producer_shows_its_arguments() -> None:
    with tidelog.Producer(bootstrap_servers="127.0.0.1:1") as producer:
        assert {"Args", "Returns", "Example"} <= sections(producer.send).keys()  # the compiled method itself
        producer.close(0)
