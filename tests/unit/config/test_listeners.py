from __future__ import annotations

import socket

from tidelog.config.listeners import Listener, parse_listeners, parse_map, reachable

PLAIN = {"A": "PLAINTEXT", "B": "PLAINTEXT"}


def test_listeners_are_parsed_as_kafka_parses_them() -> None:
    assert parse_listeners("listeners", ["a://host:9092", "B://[::1]:0"], PLAIN) == (
        Listener("A", "host", 9092, "PLAINTEXT"),
        Listener("B", "::1", 0, "PLAINTEXT"),
    )


def test_a_printed_listener_reads_back_the_same() -> None:
    for listener in (Listener("A", "", 9092, "PLAINTEXT"), Listener("B", "fe80::1%eth0", 1, "PLAINTEXT")):
        assert parse_listeners("listeners", [str(listener)], PLAIN) == (listener,)


def test_clients_are_told_the_bound_port_and_this_machines_name() -> None:
    told = (Listener("A", "", 0, "PLAINTEXT"), Listener("B", "broker.example", 9094, "PLAINTEXT"))
    assert reachable(told, {"A": 40123, "B": 40124}) == (
        Listener("A", socket.getfqdn(), 40123, "PLAINTEXT"),
        Listener("B", "broker.example", 9094, "PLAINTEXT"),
    )


def test_a_map_splits_at_the_last_colon() -> None:
    assert parse_map("x", " a:b:c:1 , d : 2") == {"a:b:c": "1", "d": "2"}
    assert parse_map("x", "  ") == {}
