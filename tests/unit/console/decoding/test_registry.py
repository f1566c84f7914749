"""A registry that is away, slow, hostile or wrong costs a bounded time and memory, and a sentence."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
import time
from collections.abc import Callable, Coroutine, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.rigs.schema_registry import SchemaRegistry, send_body
from tests.rigs.tls_files import TlsFiles

from tidelog.console.records.decoding import registry as under_test
from tidelog.console.records.decoding.problem import DecodeProblem
from tidelog.console.records.decoding.registry import Registry, Schema, SchemaRef
from tidelog.console.settings import RegistrySettings

T = TypeVar("T")
FIRST = SchemaRef(1)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines that run tests may be busy; the test of a slow registry has none."""
    monkeypatch.setattr(under_test, "REQUEST_S", 60.0)
    monkeypatch.setattr(under_test, "SCHEMA_S", 120.0)


@pytest.fixture
def server() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as running:
        yield running


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def with_registry(
    settings: RegistrySettings,
    use: Callable[[Registry], Coroutine[Any, Any, T]],
    clock: Callable[[], float] = time.monotonic,
) -> T:
    async def main() -> T:
        registry = Registry(settings, clock)
        try:
            return await use(registry)
        finally:
            await registry.close()

    return asyncio.run(main())


def schema_of(settings: RegistrySettings, ref: SchemaRef = FIRST) -> Schema:
    return with_registry(settings, lambda registry: registry.schema(ref))


def problem_of(settings: RegistrySettings, ref: SchemaRef = FIRST) -> str:
    with pytest.raises(DecodeProblem) as caught:
        schema_of(settings, ref)
    text = str(caught.value)
    assert "127.0.0.1" not in text
    return text


def test_references_are_followed_the_innermost_first(server: SchemaRegistry) -> None:
    def to(name: str) -> dict[str, Any]:
        return {"name": name, "subject": f"of/{name}", "version": 1}

    server.register("of/c", '"long"')
    server.register("of/b", '"int"', references=[to("c")])
    server.register("of/a", '"string"', references=[to("b"), to("c")])
    number = server.register("main", '"bytes"', references=[to("a"), to("c")])
    found = schema_of(RegistrySettings(server.url), SchemaRef(number))
    assert [each.name for each in found.references] == ["c", "b", "a"]
    assert len(server.asked) == 5  # each of them once, and the subjects


def test_references_in_a_circle_end(server: SchemaRegistry) -> None:
    to_itself = [{"name": "a", "subject": "main", "version": 1}]
    number = server.register("main", '"long"', references=to_itself)
    found = schema_of(RegistrySettings(server.url), SchemaRef(number))
    assert [each.name for each in found.references] == ["a"]


def test_endless_references_are_refused(server: SchemaRegistry) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        number = len(server.asked)
        references = [{"name": f"n{number}", "subject": f"s{number}", "version": 1}]
        send_body(request, json.dumps({"schema": '"long"', "references": references}).encode())

    server.misbehave = answer
    assert "refers to more than 100 others" in problem_of(RegistrySettings(server.url))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"<html>", "is not a schema"),
        (b"", "is not a schema"),
        (b"[1]", "is not a schema"),
        (b'{"schema": 1}', "is not a schema"),
        (b"[" * 100_000, "is not a schema"),
        (b'{"schema": "Jos\xe9"}', "is not a schema"),
        (b'{"schema": "x", "schemaType": "XML"}', "neither Avro"),
        (b'"' + b"x" * 3_000_000 + b'"', "more than 2097152 bytes"),
    ],
)
def test_nonsense_is_said_to_be_so(server: SchemaRegistry, body: bytes, says: str) -> None:
    server.misbehave = lambda request: send_body(request, body)
    assert says in problem_of(RegistrySettings(server.url))


@pytest.mark.parametrize("told", [b'[{"subject": "Jos\xe9", "version": 1}]', b'[{"a": ' + b"[" * 100_000])
def test_a_schema_is_good_without_the_names_that_cannot_be_read(server: SchemaRegistry, told: bytes) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        send_body(request, told if request.path.endswith("/versions") else b'{"schema": "\\"long\\""}')

    server.misbehave = answer
    found = schema_of(RegistrySettings(server.url))
    assert (found.text, found.subjects) == ('"long"', ())


@pytest.mark.parametrize(
    ("status", "says"),
    [(401, "does not let the console"), (404, "does not have schema 1"), (500, "responded with status 500")],
)
def test_refusals_are_told_apart(server: SchemaRegistry, status: int, says: str) -> None:
    server.misbehave = lambda request: send_body(request, b"<b>the password is hunter2</b>", status)
    problem = problem_of(RegistrySettings(server.url))
    assert says in problem
    assert "hunter2" not in problem


def test_a_redirect_is_not_followed(server: SchemaRegistry) -> None:
    with SchemaRegistry() as elsewhere:
        server.misbehave = lambda request: send_body(
            request, b"", 302, Location=f"{elsewhere.url}/schemas/ids/1"
        )
        settings = RegistrySettings(server.url, "user", "secret")
        assert "responded with a redirect" in problem_of(settings)
        assert elsewhere.asked == []


def test_an_answer_that_is_packed_is_refused(server: SchemaRegistry) -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    server.misbehave = lambda request: send_body(request, bomb, Content_Encoding="gzip")
    assert "compressed" in problem_of(RegistrySettings(server.url))


def test_a_slow_registry_is_left_alone_for_a_while(
    server: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "REQUEST_S", 0.2)

    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        request.wfile.write(b'{"schema": "')
        request.wfile.flush()
        server.released.wait(60)

    server.misbehave = drip
    clock = Clock()

    async def use(registry: Registry) -> None:
        with pytest.raises(DecodeProblem, match="does not respond"):
            await registry.schema(FIRST)
        assert len(server.asked) == 1
        for number in range(2, 50):  # nobody waits any more
            with pytest.raises(DecodeProblem, match="does not respond"):
                await registry.schema(SchemaRef(number))
        assert len(server.asked) == 1
        server.misbehave = None
        monkeypatch.setattr(under_test, "REQUEST_S", 60.0)
        number = server.register("s", '"long"')
        clock.now_s += 11
        assert (await registry.schema(SchemaRef(number))).text == '"long"'

    with_registry(RegistrySettings(server.url), use, clock)


def test_a_registry_that_is_away_is_said_to_be() -> None:
    with SchemaRegistry() as gone:
        url = gone.url
    assert "does not respond" in problem_of(RegistrySettings(url))


def test_many_who_want_one_schema_ask_once(server: SchemaRegistry) -> None:
    number = server.register("s", '"long"')

    async def use(registry: Registry) -> None:
        first = asyncio.create_task(registry.schema(SchemaRef(number)))
        await asyncio.sleep(0)
        first.cancel()  # who leaves does not take it from the others
        found = await asyncio.gather(*(registry.schema(SchemaRef(number)) for _ in range(20)))
        assert {each.text for each in found} == {'"long"'}

    with_registry(RegistrySettings(server.url), use)
    assert server.asked.count(f"/schemas/ids/{number}") == 1


def test_that_a_schema_is_not_there_is_forgotten_after_a_while(server: SchemaRegistry) -> None:
    clock = Clock()

    async def use(registry: Registry) -> None:
        for _ in range(3):
            with pytest.raises(DecodeProblem, match="does not have schema 1"):
                await registry.schema(FIRST)
        assert server.asked == ["/schemas/ids/1"]
        server.register("s", '"long"')
        clock.now_s += 60
        assert (await registry.schema(FIRST)).subjects == (("s", 1),)

    with_registry(RegistrySettings(server.url), use, clock)


def test_schemas_that_nobody_uses_are_forgotten(
    server: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "_KEPT", 2)
    for number in range(3):
        server.register("s", json.dumps({"type": "fixed", "name": f"F{number}", "size": 1}))

    async def use(registry: Registry) -> None:
        for number in (1, 2, 1, 3, 1, 2):
            await registry.schema(SchemaRef(number))

    with_registry(RegistrySettings(server.url), use)
    asked = [each for each in server.asked if not each.endswith("versions")]
    assert asked == [f"/schemas/ids/{number}" for number in (1, 2, 3, 2)]


def test_logins_are_sent() -> None:
    with SchemaRegistry(user="reader", password="pässword") as server:
        server.register("s", '"long"')
        assert schema_of(RegistrySettings(server.url, "reader", "pässword")).text == '"long"'
        assert "does not let" in problem_of(RegistrySettings(server.url, "reader", "wrong"))
    with SchemaRegistry(token="t0ken") as server:
        server.register("s", '"long"')
        assert schema_of(RegistrySettings(server.url, token="t0ken")).text == '"long"'


def test_a_certificate_is_checked(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(files.server)
    with SchemaRegistry(tls=tls) as server:
        server.register("s", '"long"')
        assert schema_of(RegistrySettings(server.url, ca=files.trust)).text == '"long"'
        assert "does not respond" in problem_of(RegistrySettings(server.url))


def test_settings_do_not_show_their_secrets() -> None:
    shown = repr(RegistrySettings("http://r", "user", "hunter2", "t0ken"))
    assert "hunter2" not in shown
    assert "t0ken" not in shown
