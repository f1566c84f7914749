from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidelog.cli import broker_pages
from tidelog.cli.broker_pages import BrokerPages, Pages, Place, parse_place
from tidelog.cli.failure import WrongUsage
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.errors import BrokerUnreachableError
from tidelog.client.metadata import Node
from tidelog.client.resources import ClusterDescription, ConfigEntry, ConfigResult, ConfigSource
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metrics.http_server import HttpAnswer, HttpRequest, HttpServer


class Cluster:
    """An admin client of a cluster of one, which says where its metrics are."""

    def __init__(self, listeners: str | None, *, error: KafkaError | None = None) -> None:
        self.config = None
        self._listeners = listeners
        self._error = error

    async def describe_cluster(self) -> ClusterDescription:
        return ClusterDescription("this", None, (Node(1, "127.0.0.1", 9092),))

    async def describe_configs(self, resources: list[Any], *, names: list[str]) -> list[ConfigResult]:
        entry = ConfigEntry(names[0], self._listeners, ConfigSource.STATIC_BROKER_CONFIG)
        return [ConfigResult(resources[0], (entry,), self._error)]


def read(body: object, *, status: int = 200, listeners: Callable[[int], str | None] = str) -> Pages:
    """The pages of a cluster whose broker answers so."""

    async def main() -> Pages:
        text = body if isinstance(body, str) else json.dumps(body)
        server = HttpServer(lambda _: HttpAnswer(status, "text/plain", iter((text,))))
        port = await server.open("127.0.0.1", 0)
        try:
            admin = cast(AsyncAdmin, Cluster(listeners(port)))
            return await BrokerPages(admin).read("/clients")
        finally:
            await server.close()

    return asyncio.run(main())


def everywhere(port: int) -> str:
    return f"0.0.0.0:{port}"


def test_a_broker_that_listens_everywhere_is_asked_where_it_is_advertised() -> None:
    pages = read({"broker": 1, "cluster": "this", "connections": []}, listeners=everywhere)
    assert (list(pages.by_broker), pages.problems, pages.silent) == ([1], [], [])


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"broker": 2, "cluster": "this"}, 200, "but broker 2 is there"),
        ({"broker": 1, "cluster": "that"}, 200, "another cluster, that"),
        ("<html>", 200, "is not a Tidelog broker"),
        ("[]", 200, "is not a Tidelog broker"),
        ('{"broker": "1"}', 200, "is not a Tidelog broker"),
        ("no\n", 404, "another program"),
        ("busy\n", 503, "503 Service Unavailable"),
    ],
)
def test_what_is_not_the_page_that_was_asked_for_is_not_taken_for_it(
    body: object, status: int, said: str
) -> None:
    pages = read(body, status=status, listeners=everywhere)
    assert pages.by_broker == {}
    assert said in pages.problems[0]


def test_a_broker_without_metrics_is_silent() -> None:
    assert read({}, listeners=lambda _: "").silent == [1]
    assert read({}, listeners=lambda _: None).silent == [1]


def test_a_port_that_the_system_chose_has_to_be_named() -> None:
    (problem,) = read({}, listeners=lambda _: "127.0.0.1:0").problems
    assert "--metrics HOST:PORT" in problem


def test_who_may_not_see_configs_is_told_so() -> None:
    async def main() -> Pages:
        refused = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")
        return await BrokerPages(cast(AsyncAdmin, Cluster(None, error=refused))).read("/clients")

    (problem,) = asyncio.run(main()).problems
    assert "the metrics address of broker 1 is unknown" in problem
    assert "request access" in problem


def test_nobody_there_is_a_problem_with_an_address() -> None:
    async def main() -> Pages:
        admin = cast(AsyncAdmin, Cluster(None))
        return await BrokerPages(admin, ["127.0.0.1:1"]).read("/clients")

    (problem,) = asyncio.run(main()).problems
    assert problem == "cannot read the metrics at http://127.0.0.1:1: connection refused"


@pytest.mark.parametrize("host", [".foo", "a..b", "a" * 70])
def test_what_is_no_name_of_a_host_is_a_problem(host: str) -> None:
    async def main() -> Pages:
        return await BrokerPages(cast(AsyncAdmin, Cluster(None)), [f"{host}:1"]).read("/clients")

    (problem,) = asyncio.run(main()).problems
    assert problem == f"cannot read the metrics at http://{host}:1: invalid host name"


class Unreachable(Cluster):
    """A cluster of two, whose second broker, or both, do not answer at first."""

    def __init__(self, port: int, *, both: bool) -> None:
        super().__init__(f"127.0.0.1:{port}")
        self.both = both
        self.asked = 0

    async def describe_cluster(self) -> ClusterDescription:
        return ClusterDescription("this", None, (Node(1, "127.0.0.1", 9092), Node(2, "127.0.0.1", 9093)))

    async def describe_configs(self, resources: list[Any], *, names: list[str]) -> list[ConfigResult]:
        self.asked += 1
        (found,) = await super().describe_configs(resources, names=names)
        if self.asked > 1:
            return [found, ConfigResult(resources[1])]
        if self.both:
            raise BrokerUnreachableError("nobody is there")
        return [found, ConfigResult(resources[1], error=KafkaError(ErrorCode.NETWORK_EXCEPTION, "not there"))]


@pytest.mark.parametrize("both", [True, False], ids=["nobody", "one of two"])
def test_who_does_not_say_where_its_pages_are_is_asked_again_later(
    monkeypatch: pytest.MonkeyPatch, both: bool
) -> None:
    body = json.dumps({"broker": 1, "cluster": "this", "connections": []})
    said = (
        "cannot find the metrics addresses: nobody is there" if both else "the metrics address of broker 2 is"
    )

    async def main() -> None:
        server = HttpServer(lambda _: HttpAnswer(200, "text/plain", iter((body,))))
        cluster = Unreachable(await server.open("127.0.0.1", 0), both=both)
        pages = BrokerPages(cast(AsyncAdmin, cluster))
        for _ in range(2):
            found = await pages.read("/clients")
            assert list(found.by_broker) == ([] if both else [1])
            (problem,) = found.problems
            assert problem.startswith(said)
        assert cluster.asked == 1, "not at every look"
        later_s = time.monotonic() + broker_pages._TRY_AGAIN_S
        monkeypatch.setattr(broker_pages, "time", SimpleNamespace(monotonic=lambda: later_s))
        for _ in range(2):
            found = await pages.read("/clients")
            assert (list(found.by_broker), found.problems, found.silent) == ([1], [], [2])
        assert cluster.asked == 2, "what all have told is kept"
        await server.close()

    asyncio.run(main())


def test_the_page_of_a_broker_that_is_known_to_be_silent_is_not_waited_for() -> None:
    asked: list[HttpRequest] = []

    def answer(request: HttpRequest) -> HttpAnswer:
        asked.append(request)
        return HttpAnswer(200, "text/plain", iter((json.dumps({"broker": 1, "cluster": "this"}),)))

    async def main() -> None:
        server = HttpServer(answer)
        pages = BrokerPages(cast(AsyncAdmin, Cluster(f"127.0.0.1:{await server.open('127.0.0.1', 0)}")))
        assert list((await pages.read("/clients")).by_broker) == [1]
        assert list((await pages.read("/clients", {1})).by_broker) == []
        assert list((await pages.read("/clients")).by_broker) == [1]
        await server.close()

    asyncio.run(main())
    assert len(asked) == 2


@pytest.mark.parametrize("text", ["9404", "host:", "host:70000", "ftp://host:1", "host:1:x", ""])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(WrongUsage, match="HOST:PORT"):
        parse_place(text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("h:1", Place("h", 1)),
        (":1", Place("127.0.0.1", 1)),
        ("[::1]:2", Place("::1", 2)),
        ("http://h:1/", Place("h", 1)),
        ("https://h:1", Place("h", 1, is_tls=True)),
    ],
)
def test_addresses(text: str, place: Place) -> None:
    assert parse_place(text) == place


def test_a_page_that_comes_byte_by_byte_for_ever_is_given_up_and_its_thread_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_pages, "_WHOLE_S", 0.5)
    hung_up = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while not reader.at_eof():
                writer.write(b" ")
                await writer.drain()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await reader.read(1000)
        hung_up.set()
        writer.close()

    async def main() -> Pages:
        server = await asyncio.start_server(drip, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        pages = BrokerPages(cast(AsyncAdmin, Cluster(f"127.0.0.1:{port}")))
        found = await pages.read("/clients")
        async with asyncio.timeout(60.0):
            await asyncio.get_running_loop().shutdown_default_executor()
            await hung_up.wait()
        server.close()
        return found

    found = asyncio.run(main())
    assert found.by_broker == {}
    assert "incomplete after" in found.problems[0]
