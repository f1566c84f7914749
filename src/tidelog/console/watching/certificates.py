"""When the certificates of brokers expire, as they show them to the console itself: any Kafka's, over TLS.

Every ten minutes there is a handshake with each broker, and nothing else, sooner where one did not answer:
connections that live for long show the certificate that was there when they began. An end is told once for
each bound that is passed, and again when a broker shows another certificate; what the history has told
already is not told again after a restart.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.metadata import Node
from tidelog.console.watching.changes import Event, Level
from tidelog.console.watching.snapshot import Snapshot
from tidelog.security.tls.certificate import read_certificate

logger = logging.getLogger(__name__)

_EVERY_S = 600.0
_AGAIN_S = 5.0
"""Until the next handshake, where a broker did not answer; twice as long each time, as looks wait for it."""
_HANDSHAKE_S = 5.0
_DAY_MS = 86_400_000
_BOUNDS: tuple[tuple[int, Level], ...] = ((1, "bad"), (7, "bad"), (30, "warning"))
"""Days before the end, and how much that matters; the closest first."""
KINDS = ("certificate-expires", "certificate-expired")


class CertificateWatch:
    """Of one cluster."""

    def __init__(self) -> None:
        self._told: set[tuple[str, int, str, int]] = set()
        self.expires_ms: dict[int, int] = {}
        """By broker, in ms since 1970, of those that have shown one."""
        self._due_s = 0.0
        self._again_s = _AGAIN_S

    def remember(self, events: Iterable[Event]) -> None:
        """What was told before the console was started again."""
        for each in events:
            if each.kind in KINDS:
                args = each.args
                self._told.add((each.kind, int(args["broker"]), str(args["date"]), int(args.get("days", 0))))

    async def look(self, admin: AsyncAdmin, now: Snapshot) -> list[Event]:
        """Shake hands where that is due; a broker that does not answer keeps what is known of it."""
        security = admin.cluster.settings.security
        if security is None or security.tls is None or now.at_s < self._due_s:
            return []
        context = security.tls()
        shown = await asyncio.gather(*(_shown(each, context) for each in now.cluster.nodes))
        found = {
            node.id: int(read_certificate(each).not_after.timestamp() * 1000)
            for node, each in zip(now.cluster.nodes, shown, strict=True)
            if each is not None
        }
        answered = len(found) == len(shown)
        self._due_s = now.at_s + (_EVERY_S if answered else self._again_s)
        self._again_s = _AGAIN_S if answered else min(2 * self._again_s, _EVERY_S)
        return self.compare(now.at_ms, found)

    def compare(self, at_ms: int, found: Mapping[int, int]) -> list[Event]:
        """What is to be told now."""
        events = []
        for broker, expires_ms in sorted(found.items()):
            known = self.expires_ms.get(broker)
            date = f"{datetime.fromtimestamp(expires_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
            if known is not None and known != expires_ms:
                level: Level = "good" if expires_ms > known else "warning"
                events.append(Event(at_ms, "certificate-changed", level, {"broker": broker, "date": date}))
            self.expires_ms[broker] = expires_ms
            told = self._due(at_ms, broker, expires_ms, date)
            if told is not None:
                events.append(told)
        return events

    def _due(self, at_ms: int, broker: int, expires_ms: int, date: str) -> Event | None:
        left_days = (expires_ms - at_ms) / _DAY_MS
        args: dict[str, str | int | float] = {"broker": broker, "date": date}
        if left_days <= 0:
            return self._once(Event(at_ms, "certificate-expired", "bad", args))
        for days, level in _BOUNDS:
            if left_days <= days:
                return self._once(Event(at_ms, "certificate-expires", level, {**args, "days": days}))
        return None

    def _once(self, event: Event) -> Event | None:
        args = event.args
        key = event.kind, int(args["broker"]), str(args["date"]), int(args.get("days", 0))
        if key in self._told:
            return None
        self._told.add(key)
        return event


async def _shown(node: Node, context: ssl.SSLContext) -> bytes | None:
    """The certificate that a broker shows (DER); None if there is no handshake with it."""
    try:
        async with asyncio.timeout(_HANDSHAKE_S):
            _, writer = await asyncio.open_connection(
                node.host, node.port, ssl=context, server_hostname=node.host
            )
    except (OSError, TimeoutError) as error:
        logger.debug("TLS handshake with broker %d failed: %s", node.id, error)
        return None
    writer.transport.abort()
    found: ssl.SSLObject | None = writer.get_extra_info("ssl_object")
    return None if found is None else found.getpeercert(binary_form=True)
