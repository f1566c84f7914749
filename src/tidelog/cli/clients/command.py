"""``tidelog clients``: who is connected to the brokers of a cluster, and what they ask for.

Kafka's protocol has no request for that. Brokers of Tidelog tell it over HTTP, where they tell their metrics
(``cli/broker_pages``); of other brokers what the protocol does tell is shown: group members and producers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from tidelog.cli.broker_pages import BrokerPages, Pages
from tidelog.cli.clients import by_protocol
from tidelog.cli.clients.use import Client, OpenConnection, clients_of, connections_between, left_out, told
from tidelog.cli.connect import with_admin
from tidelog.cli.failure import Failure
from tidelog.cli.output import (
    bytes_text,
    counted,
    examples,
    is_terminal,
    print_json,
    print_table,
    printable,
    remark,
    time_text,
)
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, JsonOutput, Metrics, grouped
from tidelog.client.admin.async_admin import AsyncAdmin

app = typer.Typer()

Interval = Annotated[
    float,
    typer.Option("--interval", "-i", min=0.1, max=60.0, help="The interval in seconds for measuring rates."),
]

_SOFTWARE_WIDTH = 28
_REMEDY = "start it with --metrics HOST:PORT, or set metrics.listeners"


@dataclass
class Found:
    """What is known of a cluster's clients."""

    connections: list[OpenConnection]
    pages: Pages
    protocol: by_protocol.Clients | None
    """Only if a broker does not report its connections."""

    @property
    def remarks(self) -> list[str]:
        """Where it comes from, as far as a person has to know, and what is missing."""
        told = [*self.pages.problems]
        told += [
            f"broker {broker} omitted {more} more connections"
            for broker, more in left_out(self.pages.by_broker)
        ]
        if self.pages.silent:
            names = ", ".join(map(str, sorted(self.pages.silent)))
            plural = "s" if len(self.pages.silent) > 1 else ""
            told.append(
                f"broker{plural} {names} {'do' if plural else 'does'} not report connections, without "
                f"a metrics listener ({_REMEDY})"
            )
        if self.protocol is not None:
            told.append(
                "the Kafka protocol reports only group members and idempotent producers; other "
                "clients are not listed"
            )
            told += self.protocol.problems
            if self.protocol.producers_left_out:
                told.append(f"{self.protocol.producers_left_out} less recent producers are not shown")
        return told


async def look(admin: AsyncAdmin, metrics: Sequence[str] | None, interval_s: float) -> Found:
    """Look twice, and at what the protocol tells where brokers tell nothing."""
    pages = BrokerPages(admin, metrics)
    first = await pages.read("/clients")
    began_s = time.monotonic()
    if first.by_broker:
        await asyncio.sleep(interval_s)
        now = await pages.read("/clients")
    else:
        now = first
    connections = connections_between(
        {broker: told(page) for broker, page in first.by_broker.items()},
        {broker: told(page) for broker, page in now.by_broker.items()},
        max(time.monotonic() - began_s, 1e-3),
    )
    incomplete = bool(now.silent or now.problems)
    return Found(connections, now, await by_protocol.ask(admin) if incomplete else None)


@app.command(
    "list",
    epilog=examples(
        "tidelog clients list",
        "tidelog clients list --throttled",
        "tidelog clients list --metrics broker1:9404 --metrics broker2:9404",
        "tidelog clients list --json | jq '.clients[].client_id'",
    ),
)
@grouped
def list_clients(
    throttled: Annotated[bool, typer.Option("--throttled", help="Only clients throttled by quotas.")] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=1, help="The maximum number of clients to show, busiest first."),
    ] = None,
    interval: Interval = 1.0,
    metrics: Metrics = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """List who is connected, the busiest first: software, address, login, requests and bytes a second."""
    found = with_admin(connection, lambda admin: look(admin, metrics, interval))
    clients = [each for each in clients_of(found.connections) if each.is_throttled or not throttled]
    shown = clients[:limit]
    remarks = found.remarks
    if len(shown) < len(clients):
        remarks.append(f"{len(clients) - len(shown)} more clients are not shown (--limit)")
    if json:
        protocol = found.protocol or by_protocol.Clients()
        print_json(
            {
                "clients": [asdict(each) for each in shown],
                "members": [asdict(each) for each in protocol.members],
                "producers": [asdict(each) for each in protocol.producers],
                "remarks": remarks,
            }
        )
        return
    if found.pages.by_broker or found.protocol is None:
        if not shown and is_terminal():
            remark("no client is throttled" if throttled else "no client is connected")
        else:
            _print_clients(shown)
    if found.protocol is not None:
        print_protocol(found.protocol)
    for each in remarks:
        remark(each)


def _print_clients(clients: Sequence[Client]) -> None:
    print_table(
        (
            "client id",
            "software",
            "address",
            "listener",
            "principal",
            "connections",
            "requests/s",
            "in/s",
            "out/s",
            "throttle",
            "seen",
        ),
        [
            (
                printable(each.client_id),
                _cut(_software(each.software, each.software_version)),
                each.host,
                each.listener,
                printable(each.principal),
                each.connections,
                _rate(each.requests_per_second),
                _bytes(each.received_bytes_per_second),
                _bytes(each.sent_bytes_per_second),
                _throttle(each.pause_left_ms, each.pauses),
                _ago(each.idle_ms),
            )
            for each in clients
        ],
        right=("connections", "requests/s", "in/s", "out/s", "throttle", "seen"),
        optional=("listener", "seen", "software", "connections", "principal", "throttle"),
    )


def print_protocol(found: by_protocol.Clients) -> None:
    """What Kafka's protocol tells of clients."""
    people = is_terminal()
    if found.members or not people:
        print_table(
            ("client id", "address", "group", "state", "partitions"),
            [
                (printable(each.client_id), each.host, printable(each.group), each.state, each.partitions)
                for each in found.members
            ],
            title="Members of groups" if people else None,
            right=("partitions",),
            optional=("state",),
        )
    else:
        print("no group has members")
    if found.producers or not people:
        print_table(
            ("producer id", "transactional id", "partitions", "open transactions", "last write"),
            [
                (
                    each.producer_id,
                    printable(each.transactional_id),
                    each.partitions,
                    each.open_transactions,
                    time_text(each.last_write_ms),
                )
                for each in found.producers
            ],
            title="Idempotent producers" if people else None,
            right=("producer id", "partitions", "open transactions"),
            optional=("open transactions",),
        )
    else:
        print("no idempotent producers")


@app.command(
    no_args_is_help=True,
    epilog=examples("tidelog clients describe nightly-export", "tidelog clients describe rdkafka --json"),
)
@grouped
def describe(
    client_ids: Annotated[list[str], typer.Argument(metavar="CLIENT_ID", help="A client id.")],
    interval: Interval = 1.0,
    metrics: Metrics = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Describe clients by their client id: every connection of theirs, and the groups they are members of."""
    wanted = list(dict.fromkeys(client_ids))

    async def action(admin: AsyncAdmin) -> tuple[Found, by_protocol.Clients]:
        found = await look(admin, metrics, interval)
        return found, found.protocol or await by_protocol.ask(admin, producers=False)

    found, protocol = with_admin(connection, action)
    connections = {
        name: [each for each in found.connections if each.told.client_id == name] for name in wanted
    }
    members = {name: [each for each in protocol.members if each.client_id == name] for name in wanted}
    if json:
        print_json(
            {
                "clients": [
                    {
                        "client_id": name,
                        "connections": [_connection_json(each) for each in connections[name]],
                        "members": [asdict(each) for each in members[name]],
                    }
                    for name in wanted
                ],
                "remarks": found.remarks,
            }
        )
    else:
        for name in wanted:
            if connections[name] or members[name]:
                _print_one(name, connections[name], members[name])
    for each in [] if json else found.remarks:
        remark(each)
    missing = [name for name in wanted if not connections[name] and not members[name]]
    if missing:
        where = "is connected" if found.protocol is None else "is known"
        raise Failure(
            f"no client with the id {' or '.join(map(repr, missing))} {where}: run `tidelog clients "
            "list` to see the clients"
        )


def _connection_json(connection: OpenConnection) -> dict[str, Any]:
    rates = asdict(connection)
    del rates["told"]
    return {
        **{name: getattr(connection.told, name) for name in connection.told.__struct_fields__},
        **rates,
    }


def _print_one(
    client_id: str, connections: Sequence[OpenConnection], members: Sequence[by_protocol.Member]
) -> None:
    software = {_software(each.told.software, each.told.software_version) for each in connections}
    summary = [
        ("client id", printable(client_id)),
        ("software", ", ".join(sorted(each for each in software if each)) or "-"),
        ("principal", printable(", ".join(sorted({each.told.principal for each in connections}))) or "-"),
        ("requests/s", _rate(sum(each.requests_per_second for each in connections))),
        ("in/s", _bytes(sum(each.received_bytes_per_second for each in connections))),
        ("out/s", _bytes(sum(each.sent_bytes_per_second for each in connections))),
        ("pauses", str(sum(each.told.pauses for each in connections))),
    ]
    people = is_terminal()
    if people:
        for name, value in summary if connections else summary[:1]:
            print(f"{name:<12}{value}")
    if connections:
        print_table(
            ("broker", "address", "listener", "requests", "received", "sent", "throttle", "age", "seen"),
            [
                (
                    each.broker,
                    each.address,
                    each.told.listener,
                    each.told.requests,
                    _bytes(each.told.received_bytes),
                    _bytes(each.told.sent_bytes),
                    _throttle(each.told.pause_left_ms, each.told.pauses),
                    None if each.told.age_ms is None else _duration(each.told.age_ms),
                    _ago(each.told.idle_ms),
                )
                for each in sorted(
                    connections, key=lambda each: (each.broker, each.told.host, each.told.port)
                )
            ],
            title=counted(len(connections), "connection") if people else None,
            right=("broker", "requests", "received", "sent", "throttle", "age", "seen"),
            optional=("age", "listener", "requests"),
        )
    if members:
        print_table(
            ("group", "state", "partitions", "address", "member id"),
            [
                (
                    printable(each.group),
                    each.state,
                    each.partitions,
                    each.host,
                    printable(each.member_id),
                )
                for each in members
            ],
            title="Member of" if people else None,
            right=("partitions",),
            optional=("member id", "address"),
        )


def _software(name: str | None, version: str | None) -> str | None:
    return None if not name else f"{name} {version}" if version else name


def _cut(text: str | None) -> str | None:
    """So much that one long name does not cost the others a column; ``describe`` has all of it."""
    too_long = text is not None and len(text) > _SOFTWARE_WIDTH and is_terminal()
    return f"{text[: _SOFTWARE_WIDTH - 1]}…" if text is not None and too_long else text


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def _bytes(value: float) -> str:
    return bytes_text(value) if is_terminal() else f"{value:.0f}"


def _throttle(pause_left_ms: int, pauses: int) -> str | None:
    """What quotas do to it: pausing at this moment, or how often it had to."""
    if pause_left_ms:
        return f"{pause_left_ms / 1000:.1f} s left" if is_terminal() else str(pause_left_ms)
    return f"{counted(pauses, 'pause')}" if pauses else None


def _ago(milliseconds: int) -> str:
    return f"{_duration(milliseconds)} ago" if is_terminal() else str(milliseconds)


def _duration(milliseconds: int) -> str:
    if not is_terminal():
        return str(milliseconds)
    seconds = milliseconds / 1000
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
