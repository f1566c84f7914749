"""``tidelog quotas``: list, set and remove quotas of users, client ids and IP addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import typer

from tidelog.cli.connect import with_admin
from tidelog.cli.failure import Failure, WrongUsage, report_failures
from tidelog.cli.output import Changes, examples, is_terminal, print_json, print_table, remark
from tidelog.cli.quotas.amounts import amount_text, parse_bytes, parse_number
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, JsonOutput, grouped
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.quotas import (
    CLIENT_ID,
    IP,
    USER,
    AnyName,
    ClientQuotas,
    Entity,
    QuotaAlteration,
    entity_text,
)

app = typer.Typer()

PRODUCE, CONSUME = "producer_byte_rate", "consumer_byte_rate"
REQUESTS, CHANGES, CONNECTIONS = "request_percentage", "controller_mutation_rate", "connection_creation_rate"

User = Annotated[str | None, typer.Option("--user", "-u", metavar="NAME", help="A user name.")]
DefaultUser = Annotated[
    bool, typer.Option("--default-user", help="The default for users without their own quota.")
]
Client = Annotated[str | None, typer.Option("--client-id", metavar="ID", help="A client id.")]
DefaultClient = Annotated[
    bool, typer.Option("--default-client", help="The default for client ids without their own quota.")
]
Ip = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="An IP address or a host name.")]
DefaultIp = Annotated[
    bool, typer.Option("--default-ip", help="The default for IP addresses without their own quota.")
]


@dataclass(frozen=True)
class EntityOptions:
    """Whose quotas."""

    user: User = None
    default_user: DefaultUser = False
    client_id: Client = None
    default_client: DefaultClient = False
    ip: Ip = None
    default_ip: DefaultIp = False


NOBODY = EntityOptions()


@app.command("list", epilog=examples("tidelog quotas list", "tidelog quotas list --user alice --json"))
@grouped
def list_quotas(
    whose: EntityOptions = NOBODY,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """List quotas: all of them, or those of a user, a client id or an address."""
    wanted: dict[str, str | AnyName | None] = {**_entity(whose)}
    found = with_admin(connection, lambda admin: admin.describe_client_quotas(wanted))
    found.sort(key=_sort_key)
    if json:
        print_json([{"entity": dict(each.entity), "quotas": dict(each.quotas)} for each in found])
        return
    if not found and is_terminal():
        remark("No matching quotas; run `tidelog quotas set` to add one.")
        return
    rows = [
        (*(_name(each.entity, kind) for kind in (USER, CLIENT_ID, IP)), key, amount_text(key, value))
        for each in found
        for key, value in sorted(each.quotas.items())
    ]
    print_table(("user", "client id", "ip", "quota", "value"), rows, right=("value",))


@app.command(
    "set",
    epilog=examples(
        "tidelog quotas set --user alice --produce 10MB --consume 20MB",
        "tidelog quotas set --default-client --requests 25",
        "tidelog quotas set --default-ip --connections 20",
    ),
)
@grouped
def set_quotas(
    whose: EntityOptions = NOBODY,
    produce: Annotated[
        str | None,
        typer.Option(
            "--produce", metavar="BYTES", help="The produce rate in bytes per second, such as 500kB or 10MB."
        ),
    ] = None,
    consume: Annotated[
        str | None, typer.Option("--consume", metavar="BYTES", help="The fetch rate in bytes per second.")
    ] = None,
    requests: Annotated[
        str | None,
        typer.Option(
            "--requests", metavar="PERCENT", help="The percentage of a broker's request handling time."
        ),
    ] = None,
    changes: Annotated[
        str | None,
        typer.Option(
            "--changes", metavar="NUMBER", help="The number of partitions created or deleted per second."
        ),
    ] = None,
    connections: Annotated[
        str | None,
        typer.Option(
            "--connections",
            metavar="NUMBER",
            help="The number of new connections per second from an IP address.",
        ),
    ] = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Set quotas, on each broker; others of the same user, client id or address stay as they are."""
    entity = _entity(whose)
    quotas: dict[str, float | None] = {}
    if produce is not None:
        quotas[PRODUCE] = parse_bytes(produce, "--produce")
    if consume is not None:
        quotas[CONSUME] = parse_bytes(consume, "--consume")
    if requests is not None:
        quotas[REQUESTS] = parse_number(requests, "--requests")
    if changes is not None:
        quotas[CHANGES] = parse_number(changes, "--changes")
    if connections is not None:
        quotas[CONNECTIONS] = parse_number(connections, "--connections", whole=True)
    _check(entity, quotas)
    if not quotas:
        raise WrongUsage("no quota specified: pass --produce, --consume, --requests or --changes")
    shown = ", ".join(f"{key} {amount_text(key, value)}" for key, value in quotas.items() if value)
    with Changes(json=json, quiet=True) as done:
        _alter(connection, entity, quotas)
        done.add(
            f"Quotas of {entity_text(entity)}, on each broker: {shown}.", entity={**entity}, quotas=quotas
        )


@app.command(
    "remove",
    epilog=examples("tidelog quotas remove --user alice", "tidelog quotas remove --default-client --produce"),
)
@grouped
def remove_quotas(
    whose: EntityOptions = NOBODY,
    produce: Annotated[bool, typer.Option("--produce", help="Remove only the produce rate.")] = False,
    consume: Annotated[bool, typer.Option("--consume", help="Remove only the fetch rate.")] = False,
    requests: Annotated[bool, typer.Option("--requests", help="Remove only the request percentage.")] = False,
    changes: Annotated[
        bool, typer.Option("--changes", help="Remove only the partition mutation rate.")
    ] = False,
    connections: Annotated[
        bool, typer.Option("--connections", help="Remove only the connection rate.")
    ] = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Remove quotas: all of a user, a client id or an address, or those that are named."""
    entity = _entity(whose)
    named = {
        PRODUCE: produce,
        CONSUME: consume,
        REQUESTS: requests,
        CHANGES: changes,
        CONNECTIONS: connections,
    }
    chosen = [key for key, is_named in named.items() if is_named]
    _check(entity, dict.fromkeys(chosen))

    async def remove(admin: AsyncAdmin) -> list[str]:
        found = [
            each
            for each in await admin.describe_client_quotas({**entity}, strict=True)
            if each.entity == entity
        ]
        known = list(found[0].quotas) if found else []
        gone = [key for key in chosen or known if key in known]
        if not gone:
            raise Failure(
                f"{entity_text(entity)} has no such quotas: run `tidelog quotas list` to see all quotas"
            )
        results = await admin.alter_client_quotas([QuotaAlteration(entity, dict.fromkeys(gone))])
        report_failures([each.error for each in results if each.error is not None])
        return gone

    with Changes(json=json, quiet=True) as done:
        gone = with_admin(connection, remove)
        done.add(f"Removed of {entity_text(entity)}: {', '.join(gone)}.", entity={**entity}, removed=gone)


def _alter(connection: Connection, entity: Entity, quotas: Mapping[str, float | None]) -> None:
    results = with_admin(
        connection,
        lambda admin: admin.alter_client_quotas([QuotaAlteration(entity, quotas)]),
    )
    report_failures([each.error for each in results if each.error is not None])


def _entity(whose: EntityOptions) -> dict[str, str | None]:
    entity: dict[str, str | None] = {}
    for kind, option, name, default in (
        (USER, "--user", whose.user, whose.default_user),
        (CLIENT_ID, "--client-id", whose.client_id, whose.default_client),
        (IP, "--ip", whose.ip, whose.default_ip),
    ):
        default_option = "--default-client" if kind == CLIENT_ID else f"--default-{kind}"
        if name is not None and default:
            raise WrongUsage(f"{option} and {default_option} are mutually exclusive")
        if name == "":
            raise WrongUsage(f"{option} is empty: specify a name, or pass {default_option}")
        if name is not None or default:
            entity[kind] = name
    if IP in entity and len(entity) > 1:
        raise WrongUsage("--ip cannot be combined with users or client ids")
    return entity


def _check(entity: Entity, quotas: Mapping[str, float | None]) -> None:
    if not entity:
        raise WrongUsage("specify --user, --client-id or --ip, or one of their defaults")
    if IP in entity and quotas.keys() - {CONNECTIONS}:
        raise WrongUsage("an IP address has only one quota: --connections")
    if IP not in entity and CONNECTIONS in quotas:
        raise WrongUsage("--connections applies to IP addresses: pass --ip or --default-ip")


def _name(entity: Entity, kind: str) -> str:
    if kind not in entity:
        return ""
    name = entity[kind]
    return "(default)" if name is None else name


def _sort_key(quotas: ClientQuotas) -> list[tuple[bool, bool, str]]:
    found = []
    for kind in (USER, CLIENT_ID, IP):
        name = quotas.entity.get(kind)
        found.append((kind not in quotas.entity, name is not None, name or ""))
    return found
