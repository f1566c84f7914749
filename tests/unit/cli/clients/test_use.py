from __future__ import annotations

from typing import Any

import pytest

from tidelog.cli.clients.use import Usage, clients_of, connections_between, left_out, told


def connection(port: int, **values: Any) -> Usage:
    given: dict[str, Any] = {
        "client_id": "app",
        "software": "librdkafka",
        "software_version": "2.8.0",
        "host": "10.0.0.7",
        "listener": "PLAINTEXT",
        "security_protocol": "PLAINTEXT",
        "principal": "User:ANONYMOUS",
        "follower": False,
        "idle_ms": 500,
        "requests": 0,
        "received_bytes": 0,
        "sent_bytes": 0,
        "pauses": 0,
        "pause_left_ms": 0,
        **values,
    }
    return Usage(port=port, **given)


def test_rates_are_what_came_between_two_looks() -> None:
    before = {1: [connection(1, requests=10, received_bytes=1000, sent_bytes=50)]}
    now = {1: [connection(1, requests=30, received_bytes=5000, sent_bytes=450, pauses=2)]}
    (found,) = connections_between(before, now, 2.0)
    assert found.requests_per_second == 10
    assert found.received_bytes_per_second == 2000
    assert found.sent_bytes_per_second == 200
    assert found.pauses_per_second == 1


def test_a_new_connection_on_an_old_port_counts_from_nothing() -> None:
    before = {1: [connection(1, requests=1000)]}
    now = {1: [connection(1, requests=4), connection(2, requests=6)]}
    assert [each.requests_per_second for each in connections_between(before, now, 2.0)] == [2, 3]


def test_connections_of_one_client_are_one_row_over_all_brokers() -> None:
    now = {
        1: [connection(1, requests=4, pauses=3, idle_ms=9), connection(2, requests=2, client_id="other")],
        2: [connection(1, requests=6, pause_left_ms=700, idle_ms=4)],
    }
    clients = clients_of(connections_between({}, now, 1.0))
    assert [(each.client_id, each.connections, each.brokers) for each in clients] == [
        ("app", 2, [1, 2]),
        ("other", 1, [1]),
    ]
    assert clients[0].requests_per_second == 10
    assert clients[0].pauses == 3
    assert clients[0].pause_left_ms == 700
    assert clients[0].idle_ms == 4
    assert [each.is_throttled for each in clients] == [True, False]


def test_who_moves_most_comes_first_whatever_is_told_of_them() -> None:
    now = {
        1: [
            connection(1, client_id=None, software=None, software_version=None),
            connection(2, client_id="busy", sent_bytes=10),
            connection(3, client_id="chatty", requests=5),
        ]
    }
    clients = clients_of(connections_between({}, now, 1.0))
    assert [each.client_id for each in clients] == ["busy", "chatty", None]


@pytest.mark.parametrize("rows", [[], [{"host": "a", "port": 1}]])
def test_pages_are_read_as_they_should_be_or_not_at_all(rows: list[dict[str, object]]) -> None:
    if rows:
        with pytest.raises(ValueError, match="missing required field"):
            told({"connections": rows})
    else:
        assert told({"connections": rows}) == []


def test_brokers_say_how_many_they_have_left_out() -> None:
    assert list(left_out({1: {"left_out": 0}, 2: {"left_out": 7}, 3: {}})) == [(2, 7)]
