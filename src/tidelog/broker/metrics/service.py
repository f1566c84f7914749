"""The metrics of one broker: what looks at it every few seconds, and the pages over HTTP.

``/metrics`` is everything, ``/live`` says that the process answers, ``/ready`` whether clients should come:
the broker serves, its replicas are in sync, and no log directory has failed. ``/clients``, ``/requests`` and
``/throttled`` are for people (``client_pages``), and so is ``/telemetry``: what clients have pushed of their
own figures, by client. Opened by ``broker/app`` where ``metrics.listeners`` names an address, or
``tidelog.otlp.endpoint`` one to which everything is sent.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidelog.broker.fetch.delayed_fetch import Fetch
from tidelog.broker.fetch.follower_poll import FollowerPoll
from tidelog.broker.metrics.client_pages import client_page, request_page, throttle_page
from tidelog.broker.metrics.group_figures import GroupFigures
from tidelog.broker.metrics.partition_figures import PartitionFigures
from tidelog.broker.metrics.quota_figures import quota_figures
from tidelog.broker.metrics.request_figures import RequestFigures
from tidelog.broker.metrics.telemetry_figures import telemetry_figures, telemetry_page
from tidelog.broker.produce.produce_wait import ProduceWait
from tidelog.broker.state import BrokerState
from tidelog.config.listeners import Listener
from tidelog.custom_class import is_custom_class
from tidelog.errors import ConfigError
from tidelog.metrics import catalog
from tidelog.metrics.http_server import (
    HttpAnswer,
    HttpRequest,
    HttpServer,
    address_of,
    wants_openmetrics,
)
from tidelog.metrics.page import Page, labels
from tidelog.metrics.process_figures import ProcessFigures
from tidelog.metrics.request_times import RequestTimes
from tidelog.metrics.timing import timing
from tidelog.version import __version__, commit

if TYPE_CHECKING:
    from tidelog.broker.metrics.observed import ObservedBroker
    from tidelog.broker.metrics.reporting import Reporting
    from tidelog.broker.network.tls_listeners import TlsListeners
    from tidelog.metrics.otlp_export import OtlpExport

logger = logging.getLogger(__name__)

_LOOK_S = 5.0
_TLS_NAME = "METRICS"
_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"
_PURGATORIES = {Fetch: "Fetch", FollowerPoll: "Fetch", ProduceWait: "Produce"}


class MetricsService:
    """Opened when the broker's network is there, closed with it."""

    def __init__(self, broker: ObservedBroker) -> None:
        self._broker = broker
        self.times = RequestTimes()
        self._requests = RequestFigures(broker, self.times, broker.partitions.counts.errors)
        self._partitions = PartitionFigures(broker)
        self._groups = GroupFigures(broker)
        self._process = ProcessFigures()
        self._http = HttpServer(self._serve)
        self._newer_names = broker.config.str("tidelog.metrics.names") == "reporter"
        self._scrape_s = 0.0
        self._commit = commit()
        self._secure: TlsListeners | None = None
        self._looking: asyncio.Task[None] | None = None
        self._otlp: OtlpExport | None = None
        self._reporting: Reporting | None = None
        self.ports: list[int] = []
        """Where it listens."""

    async def open(self) -> None:
        """Listen, and begin to look; raises ``ConfigError`` where an address cannot be used."""
        if self._broker.config.str("tidelog.otlp.endpoint").strip():
            # Not loaded by a broker that sends nothing.
            from tidelog.broker.metrics.otlp_target import otlp_target
            from tidelog.metrics.otlp_export import OtlpExport

            self._otlp = OtlpExport(otlp_target(self._broker.config), self._collect, self._about)
        self._open_reporting()
        for text in self._broker.config.list("metrics.listeners"):
            host, port = address_of(text)
            is_tls = text.strip().startswith("https://")
            try:
                self.ports.append(await self._http.open(host, port, self._tls() if is_tls else None))
            except (OSError, UnicodeError) as error:
                await self._http.close()
                reason = getattr(error, "strerror", None) or error
                raise ConfigError(
                    f"metrics.listeners names {text}, which cannot be opened ({reason}): "
                    "choose another address or port"
                ) from error
            logger.info(
                "Metrics are at %s://%s:%d/metrics",
                "https" if is_tls else "http",
                host or "0.0.0.0",
                self.ports[-1],
            )
        self._requests.ticks.start()
        self._looking = asyncio.get_running_loop().create_task(self._look())
        if self._otlp is not None:
            self._otlp.start()
        if self._reporting is not None:
            self._reporting.start()

    def _open_reporting(self) -> None:
        config = self._broker.config
        names = config.list("metric.reporters")
        if not any(map(is_custom_class, names)):
            return
        # Not loaded by a broker without reporters.
        from tidelog.broker.metrics.reporting import Reporting, reporters_named

        self._reporting = Reporting(
            reporters_named(names, config.without_passwords),
            self._collect,
            config.int("kafka.metrics.polling.interval.secs"),
            newer_names=self._newer_names,
        )

    def _tls(self) -> ssl.SSLContext:
        """What handshakes use: the keys of the broker's ssl options, or of ``listener.name.metrics.*``."""
        if self._secure is None:
            # Not before: a broker without TLS starts without it.
            from tidelog.broker.network.tls_listeners import TlsListeners

            self._secure = TlsListeners(self._broker.config, [Listener(_TLS_NAME, "", 0, "SSL")])
            self._secure.start()
        listener = self._secure.by_name[_TLS_NAME]

        def use_newest(handshake: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
            """A server has one context for good: handshakes take the certificate that is there by then."""
            handshake.context = listener.current.context

        first = listener.current.context
        first.sni_callback = use_newest
        return first

    async def close(self) -> None:
        """Tell no more."""
        if self._reporting is not None:
            await self._reporting.close()
        if self._otlp is not None:
            await self._otlp.close()
        self._requests.ticks.stop()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self._http.close()
        if self._secure is not None:
            await self._secure.close()

    async def _look(self) -> None:
        while True:
            try:
                self._requests.look()
                if self._broker.state.is_running:
                    await self._groups.look()
            except Exception:
                # The figures go on without this look.
                logger.exception("Looking at the broker for its metrics failed")
            await asyncio.sleep(_LOOK_S)

    # Pages

    def _serve(self, request: HttpRequest) -> HttpAnswer:
        match request.path:
            case "/metrics":
                openmetrics = wants_openmetrics(request.headers.get("accept", ""))
                page = Page(newer_names=self._newer_names, openmetrics=openmetrics)
                return HttpAnswer(200, page.content_type, self.render(page))
            case "/live":
                return HttpAnswer(200, _TEXT, iter(("live\n",)))
            case "/ready":
                reasons = self.not_ready()
                if reasons:
                    return HttpAnswer(503, _TEXT, iter([f"not ready: {'; '.join(reasons)}\n"]))
                return HttpAnswer(200, _TEXT, iter(("ready\n",)))
            case "/clients":
                return HttpAnswer(200, _JSON, client_page(self._broker))
            case "/requests":
                return HttpAnswer(200, _JSON, request_page(self._broker, self._requests))
            case "/throttled":
                return HttpAnswer(200, _JSON, throttle_page(self._broker))
            case "/telemetry":
                return HttpAnswer(200, _JSON, telemetry_page(self._broker))
        there = "/metrics, /live, /ready, /clients, /requests, /throttled and /telemetry are here\n"
        return HttpAnswer(404, _TEXT, iter((there,)))

    def not_ready(self) -> list[str]:
        """Why clients should not come yet."""
        broker = self._broker
        if not broker.state.is_running:
            return [f"the broker is in state {broker.state.name}"]
        reasons: list[str] = []
        if not broker.membership.is_informed:
            reasons.append("no controller has told the broker what there is")
        if broker.log_dirs.offline_dirs:
            reasons.append(
                f"log directories are offline: {', '.join(map(str, broker.log_dirs.offline_dirs))}"
            )
        behind = self._behind
        if behind:
            reasons.append(f"{behind} replicas are not in sync")
        return reasons

    @property
    def _behind(self) -> int:
        """Replicas here that follow and are not in sync, by what the controller told."""
        broker = self._broker
        own = broker.broker_id
        count = 0
        for partition in broker.partitions:
            if not partition.is_leader:
                known = broker.image.partition(*partition.topic_partition)
                count += known is not None and own in known.replicas and own not in known.isr
        return count

    def render(self, page: Page) -> Iterator[str]:
        """The whole page, in pieces; those that are empty are for others to have their turn."""
        began_s = time.monotonic()
        yield from self._collect(page)
        yield from page.family(catalog.SCRAPE_SECONDS, [("", self._scrape_s)])
        self._scrape_s = time.monotonic() - began_s
        yield page.end

    def _collect(self, page: Page) -> Iterator[str]:
        broker = self._broker
        yield from self._server(page)
        yield from self._process.render(page)
        if broker.state >= BrokerState.RUNNING_AS_BROKER:
            yield from self._requests.render(page)
            yield from self._partitions.render(page)
            yield from self._waits(page)
            yield from quota_figures(page, broker.quotas, broker.clock)
            if broker.running_telemetry is not None:
                yield from telemetry_figures(page, broker.running_telemetry)
            yield from self._groups.render(page)
            yield from broker.membership.figures(page)
            yield from timing(
                page, catalog.LOG_FLUSHES, catalog.LOG_FLUSHES_COUNT, broker.log_dirs.sync_times_us
            )
            yield from self._certificates(page)

    def _about(self) -> dict[str, str]:
        """Whose figures they are, in OpenTelemetry's words."""
        broker = self._broker
        return {
            "service.name": "tidelog",
            "service.version": __version__,
            "service.instance.id": f"{broker.image.cluster_id or ''}-{broker.broker_id}",
            "kafka.cluster.id": broker.image.cluster_id or "",
            "kafka.broker.id": str(broker.broker_id),
            "host.name": socket.gethostname(),
        }

    def _server(self, page: Page) -> Iterator[str]:
        broker = self._broker
        yield from page.family(catalog.BROKER_STATE, [("", int(broker.state))])
        cluster_id = broker.image.cluster_id or ""
        build = labels(
            version=__version__, commit=self._commit, broker_id=broker.broker_id, cluster_id=cluster_id
        )
        yield from page.family(catalog.BUILD_INFO, [(build, 1)])
        yield from page.family(catalog.READY, [("", int(not self.not_ready()))])
        yield from page.family(catalog.SERIES, [("", len(catalog.FAMILIES))])
        yield from page.family(catalog.SCRAPES_REFUSED, [("", self._http.refused)])
        if self._otlp is not None:
            counts = self._otlp.counts
            outcomes = [
                (labels(outcome="taken"), counts.sent),
                (labels(outcome="failed"), counts.failed),
            ]
            yield from page.family(catalog.OTLP_REQUESTS, outcomes)
            yield from page.family(catalog.OTLP_POINTS, [("", counts.points)])

    def _waits(self, page: Page) -> Iterator[str]:
        waiting = dict.fromkeys(_PURGATORIES.values(), 0)
        for number, waiter in enumerate(self._broker.deadlines.waiting(), 1):
            kind = _PURGATORIES.get(type(waiter))
            if kind is not None:
                waiting[kind] += 1
            if not number % 1000:
                yield ""
        samples = [(labels(delayedOperation=kind), count) for kind, count in waiting.items()]
        yield from page.family(catalog.PURGATORY_SIZE, samples)
        yield from page.family(catalog.DELAYED, samples)
        sessions = self._broker.fetch_sessions
        yield from page.family(catalog.FETCH_SESSIONS, [("", len(sessions))])
        yield from page.family(catalog.SESSION_PARTITIONS, [("", sessions.cached_partitions)])
        yield from page.family(catalog.SESSION_EVICTIONS, [("", sessions.evictions)])

    def _certificates(self, page: Page) -> Iterator[str]:
        secure = {
            name: each
            for listeners in (self._broker.tls_listeners, self._secure)
            if listeners is not None
            for name, each in listeners.by_name.items()
        }
        where = {name: labels(listener=name) for name in secure}
        for metric, field in (
            (catalog.CERTIFICATE_EXPIRY, "expires_at_s"),
            (catalog.TRUST_EXPIRY, "trust_expires_at_s"),
            (catalog.CERTIFICATE_RELOADS, "reloads"),
            (catalog.CERTIFICATE_FAILURES, "reload_failures"),
        ):
            found = ((where[name], getattr(each, field)) for name, each in secure.items())
            yield from page.family(metric, ((text, value) for text, value in found if value is not None))
