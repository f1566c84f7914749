"""Shows what pipelines do to those who watch: a page over HTTP for Prometheus, and OTLP to a collector.

A thread with a loop of its own, beside Spark's driver. What it shows is what it was last given
(:meth:`MetricsExport.update`); it never asks Spark itself, so a scrape costs the queries nothing. Names are
those of ``metrics/pipeline_catalog``. Used by ``tidelog pipeline run --metrics`` and ``--otlp``.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future

from tidelog.errors import ConfigError
from tidelog.metrics.http_server import HttpAnswer, HttpRequest, HttpServer, wants_openmetrics
from tidelog.metrics.otlp_export import OtlpExport, Target
from tidelog.metrics.page import Page
from tidelog.metrics.process_figures import ProcessFigures
from tidelog.spark.pipelines.query_figures import QueryFigures, render

_TEXT = "text/plain; charset=utf-8"
_STALE_S = 60.0


class MetricsExport:
    """Listens, and sends, from ``with`` to its end."""

    def __init__(self, address: tuple[str, int] | None, target: Target | None, about: Mapping[str, str]):
        """``about`` says whose figures they are, in the words of OpenTelemetry."""
        self._address = address
        self._target = target
        self._about = dict(about)
        self._latest: tuple[Sequence[QueryFigures], Mapping[str, int], Mapping[str, int] | None] = (
            (),
            {},
            None,
        )
        self._updated_s = time.monotonic()
        self._process = ProcessFigures()
        self._ready: Future[int | None] = Future()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="pipeline metrics", daemon=True)
        self.port: int | None = None
        """Where it listens."""

    def __enter__(self) -> MetricsExport:
        self._thread.start()
        self.port = self._ready.result()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def update(
        self, figures: Sequence[QueryFigures], lags: Mapping[str, int], letters: Mapping[str, int] | None
    ) -> None:
        """What is shown from now on."""
        self._latest = (tuple(figures), dict(lags), letters)
        self._updated_s = time.monotonic()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve_until_stopped())
        except Exception as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _serve_until_stopped(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = HttpServer(self._answer)
        port = None
        if self._address is not None:
            try:
                port = await server.open(*self._address)
            except OSError as error:
                host, wanted = self._address
                raise ConfigError(
                    f"--metrics {host}:{wanted} cannot be opened ({error.strerror or error}): choose another "
                    "address or port"
                ) from error
        export = None
        if self._target is not None:
            export = OtlpExport(self._target, self._render, lambda: self._about)
            export.start()
        self._ready.set_result(port)
        await self._stop.wait()
        if export is not None:
            await export.finish()
        await server.close()

    def _answer(self, request: HttpRequest) -> HttpAnswer:
        if request.path == "/metrics":
            page = Page(openmetrics=wants_openmetrics(request.headers.get("accept", "")))
            return HttpAnswer(200, page.content_type, self._whole(page))
        if request.path == "/live":
            return HttpAnswer(200, _TEXT, iter(("live\n",)))
        if request.path == "/ready":
            reasons = self._not_ready()
            return HttpAnswer(503 if reasons else 200, _TEXT, iter((reasons or "ready\n",)))
        return HttpAnswer(404, _TEXT, iter(("there are /metrics, /live and /ready\n",)))

    def _not_ready(self) -> str:
        figures, _, _ = self._latest
        if not figures:
            return "the queries have not begun\n"
        if time.monotonic() - self._updated_s > _STALE_S:
            return "the driver has not told of its queries for a minute\n"
        return "".join(f"{each.pipeline} does not run\n" for each in figures if not each.up)

    def _whole(self, page: Page) -> Iterator[str]:
        yield from self._render(page)
        yield page.end

    def _render(self, page: Page) -> Iterator[str]:
        figures, lags, letters = self._latest
        yield from render(page, figures, lags, letters, time.time())
        yield from self._process.render(page)
