"""Certificates that expire are told once for each bound, also over restarts."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.console.watching import certificates
from tidelog.console.watching.certificates import CertificateWatch

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000


def test_each_bound_is_told_once_and_the_end_itself() -> None:
    watch = CertificateWatch()
    expires_ms = NOW_MS + 100 * DAY_MS
    told = []
    for day in (0, 69, 71, 72, 94, 95, 99.5, 100.5, 101):
        events = watch.compare(NOW_MS + int(day * DAY_MS), {1: expires_ms})
        told += [(day, each.kind, each.args.get("days"), each.level) for each in events]
    assert told == [
        (71, "certificate-expires", 30, "warning"),
        (94, "certificate-expires", 7, "bad"),
        (99.5, "certificate-expires", 1, "bad"),
        (100.5, "certificate-expired", None, "bad"),
    ]


def test_a_new_certificate_is_told_and_judged_anew() -> None:
    watch = CertificateWatch()
    watch.compare(NOW_MS, {1: NOW_MS + DAY_MS * 20})
    (event,) = watch.compare(NOW_MS, {1: NOW_MS + DAY_MS * 365})
    assert (event.kind, event.level) == ("certificate-changed", "good")
    assert watch.expires_ms == {1: NOW_MS + DAY_MS * 365}


def test_what_was_told_before_a_restart_is_not_told_again() -> None:
    first = CertificateWatch().compare(NOW_MS, {1: NOW_MS + DAY_MS * 20})
    assert len(first) == 1
    again = CertificateWatch()
    again.remember(first)
    assert again.compare(NOW_MS + DAY_MS, {1: NOW_MS + DAY_MS * 20}) == []
    assert len(again.compare(NOW_MS + DAY_MS, {2: NOW_MS + DAY_MS * 20})) == 1


def test_a_broker_that_did_not_answer_is_asked_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    now: Any = SimpleNamespace(at_s=0.0, at_ms=NOW_MS, cluster=SimpleNamespace(nodes=[SimpleNamespace(id=1)]))

    async def shown(node: object, context: object) -> bytes | None:
        asked.append(now.at_s)
        return None if len(asked) <= 2 else b"a certificate"

    expires = datetime.fromtimestamp(NOW_MS / 1000 + 400 * 86_400, UTC)
    monkeypatch.setattr(certificates, "_shown", shown)
    monkeypatch.setattr(certificates, "read_certificate", lambda _: SimpleNamespace(not_after=expires))
    security = SimpleNamespace(tls=lambda: None)
    admin: Any = SimpleNamespace(cluster=SimpleNamespace(settings=SimpleNamespace(security=security)))
    watch = CertificateWatch()
    for at_s in (0.0, 2.0, 6.0, 12.0, 17.0, 300.0, 618.0):
        now.at_s = at_s
        asyncio.run(watch.look(admin, now))
    assert asked == [0.0, 6.0, 17.0, 618.0]
    assert watch.expires_ms == {1: int(expires.timestamp() * 1000)}
