from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.cli.top.samples import sample
from tests.unit.cli.top.test_picture import shown

from tidelog.cli.top.loads import load_between
from tidelog.cli.top.picture import Frame
from tidelog.cli.top.watched import Watched, request_loads, throttled_loads

PARTS = ("total", "queue", "local", "remote", "throttle", "response_queue", "send")


def request(name: str, count: int, **p99_ms: float) -> dict[str, Any]:
    parts = {
        each: {"p50_ms": p99_ms.get(each, 0.0) / 2, "p99_ms": p99_ms.get(each, 0.0), "mean_ms": 0.0}
        for each in PARTS
    }
    for each in p99_ms:
        parts[each]["mean_ms"] = p99_ms[each] / 4
    return {"request": name, "count": count, "lately": count, "parts": parts}


def throttled(
    client: str, pauses: int, used: float | None = 50.0, limit: float | None = 100.0
) -> dict[str, Any]:
    return {
        "quota": "producer_byte_rate",
        "user": None,
        "client_id": client,
        "used": used,
        "limit": limit,
        "pauses": pauses,
    }


def watched(
    requests: list[dict[str, Any]], held: list[dict[str, Any]], *, silent: tuple[int, ...] = ()
) -> Watched:
    return Watched.of({1: {"requests": requests}}, {1: {"throttled": held}}, (), silent)


def test_a_wait_that_a_client_asked_for_makes_no_request_slow() -> None:
    before = watched([request("Produce", 10, total=30, local=25)], [])
    now = watched(
        [
            request("FetchConsumer", 50, total=500, remote=495, local=4, send=1),
            request("Produce", 30, total=30, local=25, send=5),
            request("Metadata", 0),
        ],
        [],
    )
    slowest, other = request_loads(before, now, 2.0)
    assert (slowest.request, slowest.p99_ms, slowest.requests_per_second) == ("Produce", 30, 10)
    assert slowest.slowest_part == "local"
    assert slowest.slowest_share == pytest.approx(25 / 30)
    assert (other.request, other.p99_ms, other.slowest_part) == ("FetchConsumer", 5, "local")
    assert other.requests_per_second == 0


def test_who_pauses_or_uses_too_much_is_throttled_and_nobody_else() -> None:
    before = watched([], [throttled("paused-once", 1), throttled("pauses", 1)])
    now = watched(
        [],
        [
            throttled("paused-once", 1),
            throttled("pauses", 5),
            throttled("too-much", 0, used=101.0),
            throttled("new", 2, used=None),
        ],
    )
    held = throttled_loads(before, now, 2.0)
    assert [(each.client_id, each.pauses_per_second) for each in held] == [
        ("pauses", 2),
        ("new", 1),
        ("too-much", 0),
    ]
    # What came before the first look is not of this time.
    assert [each.client_id for each in throttled_loads(Watched(), now, 2.0)] == ["too-much"]


def test_a_quota_that_was_lifted_since_has_no_limit() -> None:
    # Brokers write an infinite limit as null, as JSON has no other word for it.
    before = watched([], [throttled("lifted", 1, limit=None), throttled("at rest", 1, limit=None)])
    now = watched([], [throttled("lifted", 3, limit=None), throttled("at rest", 1, limit=None)])
    (held,) = throttled_loads(before, now, 2.0)
    assert (held.client_id, held.limit) == ("lifted", None)
    assert "lifted" in "\n".join(shown(frame_of(now), 200, 50))


@pytest.mark.parametrize("page", [{}, {"requests": None}, {"requests": [{"request": 1}]}])
def test_a_page_that_cannot_be_read_is_said_and_takes_nothing_from_others(page: dict[str, Any]) -> None:
    good = {"requests": [request("Produce", 30, total=30, local=25)]}
    found = Watched.of({1: page, 2: good}, {}, ("it rains",), ())
    assert [each.request for each in found.requests[2]] == ["Produce"]
    assert 1 not in found.requests
    assert found.missing.startswith("it rains; cannot read /requests of broker 1")


def frame_of(now: Watched) -> Frame:
    before = replace(sample(10.0, (0, 0)), watched=Watched({1: []}, {1: []}))
    frame = Frame()
    frame.add(load_between(before, replace(sample(12.0, (10, 10)), watched=now)))
    return frame


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_picture_has_slow_requests_and_throttled_clients(width: int) -> None:
    now = watched([request("Produce", 30, total=31.5, local=25)], [throttled("greedy\x1b[2J", 4)])
    lines = shown(frame_of(now), width, 50)
    text = "\n".join(lines)
    assert "Slowest requests" in text
    assert "31.5" in text
    assert r"greedy\x1b[2J" in text
    assert max(map(len, lines)) <= width
    assert lines[-1] == "Ctrl-C ends it"


def test_what_no_broker_tells_is_said_in_the_last_line() -> None:
    lines = shown(frame_of(Watched(silent=(1,))), 120, 24)
    assert lines[-1].endswith("no broker reports them (start brokers with --metrics HOST:PORT)")
    assert not any(line.startswith("Slowest") for line in lines)
    some = frame_of(watched([], [], silent=(2,))).load
    assert some is not None
    assert some.unwatched.startswith("broker 2 does not report them")
