"""Figures sent to a collector: what arrives, and what happens while it does not take them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

import pytest
from tests.rigs.otlp_collector import Collector
from tests.rigs.waiting import until

from tidelog.broker.metrics.otlp_target import otlp_target
from tidelog.config.broker_config import BrokerConfig
from tidelog.errors import ConfigError
from tidelog.metrics import otlp_export
from tidelog.metrics.metric import counter
from tidelog.metrics.otlp_export import OtlpExport, endpoint_of, headers_of
from tidelog.metrics.page import Page, labels

METRIC = counter("c_total", "Help.", "n")


@pytest.fixture
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.close()


def config(port: int, **more: str) -> BrokerConfig:
    options = {name.replace("_", "."): value for name, value in more.items()}
    return BrokerConfig(
        {
            "node.id": "1",
            "log.dirs": "/nowhere",
            "tidelog.otlp.endpoint": f"http://127.0.0.1:{port}",
            "tidelog.otlp.interval.ms": "100",
            **options,
        }
    )


def figures(count: int) -> Callable[[Page], Iterator[str]]:
    def render(page: Page) -> Iterator[str]:
        yield from page.family(METRIC, ((labels(n=number), number) for number in range(count)))

    return render


def about() -> dict[str, str]:
    return {"service.name": "tidelog"}


def test_everything_arrives_at_the_usual_path_with_headers_in_requests_of_bounded_size(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp_export, "POINTS_OF_A_REQUEST", 200)

    async def body() -> None:
        headers = {"tidelog_otlp_headers": "Authorization=Bearer a=b, X-Team=tide"}
        export = OtlpExport(otlp_target(config(collector.port, **headers)), figures(500), about)
        export.start()
        await until(lambda: export.counts.sent >= 3)
        await export.close()
        assert export.counts.points >= 500

    asyncio.run(body())
    path, headers, _ = collector.requests[0]
    assert path == "/v1/metrics"
    assert headers["Content-Type"] == "application/x-protobuf"
    assert (headers["Authorization"], headers["X-Team"]) == ("Bearer a=b", "tide")
    assert sorted(collector.points()[:500]) == [("c_total", number) for number in range(500)]


@pytest.mark.parametrize("status", [302, 400, 503])
def test_a_collector_that_refuses_is_logged_once_and_that_it_takes_them_again(
    collector: Collector, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def body() -> None:
        collector.status = status
        export = OtlpExport(otlp_target(config(collector.port)), figures(1), about)
        export.start()
        await until(lambda: export.counts.failed >= 3)
        collector.status = 200
        await until(lambda: export.counts.sent >= 1)
        await until(lambda: "again" in caplog.text)
        await export.close()

    asyncio.run(body())
    assert caplog.text.count("Metrics are not taken by") == 1
    assert f"it answers {status}" in caplog.text
    assert {path for path, _, _ in collector.requests} == {"/v1/metrics"}


def test_nobody_there_and_figures_that_fail_are_no_end(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(page: Page) -> Iterator[str]:
        yield from figures(1)(page)
        raise RuntimeError("a bug")

    async def body() -> None:
        port = collector.port
        collector.close()
        export = OtlpExport(otlp_target(config(port)), figures(1), about)
        export.start()
        await until(lambda: export.counts.failed >= 2)
        await export.close()
        broken = OtlpExport(otlp_target(config(port)), failing, about)
        broken.start()
        await until(lambda: "a bug" in caplog.text)
        await broken.close()

    asyncio.run(body())
    assert "Connection refused" in caplog.text


def test_the_loop_goes_on_while_a_collector_is_silent() -> None:
    async def body() -> None:
        release = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await release.wait()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        export = OtlpExport(otlp_target(config(port, tidelog_otlp_timeout_ms="300")), figures(1), about)
        export.start()
        await until(lambda: export.counts.failed >= 1)
        await export.close()
        release.set()
        server.close()

    asyncio.run(body())


def test_a_collector_that_answers_byte_by_byte_is_left_when_its_time_is_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body() -> None:
        gone = asyncio.Event()

        async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nX: ")
            try:
                while not reader.at_eof():
                    writer.write(b"x")
                    await writer.drain()
                    await asyncio.sleep(0.02)
            except OSError:
                pass
            gone.set()
            writer.close()

        server = await asyncio.start_server(drip, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        export = OtlpExport(otlp_target(config(port, tidelog_otlp_timeout_ms="300")), figures(1), about)
        async with asyncio.timeout(60):
            await export.finish()
            await gone.wait()
        assert (export.counts.sent, export.counts.failed) == (0, 1)
        server.close()

    asyncio.run(body())
    assert "it took too long to answer" in caplog.text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://collector", "http://collector:4318/v1/metrics"),
        ("https://c.example:8443/", "https://c.example:8443/v1/metrics"),
        ("https://c.example/otlp/v1/metrics?x=1", "https://c.example:443/otlp/v1/metrics?x=1"),
        ("http://[::1]:4318", "http://[::1]:4318/v1/metrics"),
    ],
)
def test_endpoints(text: str, shown: str) -> None:
    assert str(endpoint_of(text)) == shown


@pytest.mark.parametrize(
    "text", ["collector:4318", "ftp://x", "http://", "http://u:p@x", "http://x:99999", "http://x/a b"]
)
def test_an_endpoint_that_is_none_names_the_option(text: str) -> None:
    with pytest.raises(ConfigError, match=r"tidelog\.otlp\.endpoint"):
        endpoint_of(text)


@pytest.mark.parametrize(
    "text", ["secretvalue", "a b=secretvalue", "x=secretvalue\r\nEvil: y", "ü=secretvalue"]
)
def test_headers_that_cannot_be_sent_are_refused_without_their_values(text: str) -> None:
    with pytest.raises(ConfigError, match=r"tidelog\.otlp\.headers"):
        headers_of(text)
    with pytest.raises(ConfigError) as refused:
        headers_of(text)
    assert "=" not in text or "secretvalue" not in str(refused.value)
