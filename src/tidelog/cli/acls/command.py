"""``tidelog acls``: who may do what. Lists, adds and removes access rules, and explains what follows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from tidelog.cli.acls.selection import (
    Resources,
    Selection,
    check_operation,
    parse_operation,
    principal_text,
)
from tidelog.cli.asking import confirm
from tidelog.cli.connect import with_admin
from tidelog.cli.failure import WrongUsage, report_failures
from tidelog.cli.output import counted, examples, is_terminal, print_json, print_table, printable, remark
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, JsonOutput, Yes, grouped
from tidelog.client.admin._access_explanation import BrokerAccess, Explanation, explain
from tidelog.client.admin._acls import create_acls, delete_acls, describe_acls
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.security.acls.model import WILDCARD, AclBinding, Operation, PatternType, Permission
from tidelog.security.acls.supported import SUPPORTED_OPERATIONS
from tidelog.security.principal import parse_principal

app = typer.Typer()

Topics = Annotated[
    list[str] | None, typer.Option("--topic", "-t", metavar="NAME", help="A topic; may be repeated.")
]
Groups = Annotated[
    list[str] | None, typer.Option("--group", "-g", metavar="NAME", help="A group; may be repeated.")
]
Ids = Annotated[
    list[str] | None,
    typer.Option("--transactional-id", metavar="NAME", help="A transactional id; may be repeated."),
]
Users = Annotated[
    list[str] | None,
    typer.Option("--user", metavar="NAME", help="A user to create delegation tokens for; may be repeated."),
]
Tokens = Annotated[
    list[str] | None, typer.Option("--token", metavar="NAME", help="A delegation token; may be repeated.")
]
OfCluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Prefixed = Annotated[
    bool,
    typer.Option(
        "--prefixed", help="Treat names as prefixes: -t team- matches every topic that starts with team-."
    ),
]
Principals = Annotated[
    list[str] | None,
    typer.Option(
        "--principal", metavar="User:NAME", help="A principal, such as User:alice; may be repeated."
    ),
]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="IP", help="A client address; may be repeated; default: any."),
]
Operations = Annotated[
    list[str] | None,
    typer.Option("--operation", metavar="NAME", help="READ, WRITE, DESCRIBE, … or ALL; may be repeated."),
]
Deny = Annotated[bool, typer.Option("--deny", help="Deny instead of allow; deny takes precedence.")]
ProducerRules = Annotated[
    bool,
    typer.Option(
        "--producer",
        help="The operations a producer needs: WRITE, DESCRIBE and CREATE on the topics, WRITE and "
        "DESCRIBE on transactional ids.",
    ),
]
ConsumerRules = Annotated[
    bool,
    typer.Option(
        "--consumer", help="The operations a consumer needs: READ and DESCRIBE on topics, READ on groups."
    ),
]
Idempotent = Annotated[
    bool,
    typer.Option(
        "--idempotent", help="With --producer: also IDEMPOTENT_WRITE, for brokers older than Kafka 2.8."
    ),
]


@dataclass(frozen=True)
class Named:
    """What rules are about."""

    topic: Topics = None
    group: Groups = None
    transactional_id: Ids = None
    user: Users = None
    token: Tokens = None
    cluster: OfCluster = False

    def resources(self, *, prefixed: bool = False) -> Resources:
        """As rules name them."""
        return Resources(
            self.topic or (),
            self.group or (),
            self.transactional_id or (),
            self.user or (),
            self.token or (),
            cluster=self.cluster,
            prefixed=prefixed,
        )


NOTHING = Named()


@app.command(
    "list",
    epilog=examples(
        "tidelog acls list",
        "tidelog acls list --topic orders",
        "tidelog acls list --principal User:alice --json",
    ),
)
@grouped
def list_rules(
    named: Named = NOTHING,
    exactly: Annotated[
        bool,
        typer.Option("--exactly", help="Match this exact name only, without prefixes and '*'."),
    ] = False,
    principal: Principals = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """List access rules: all of them, or those that cover what is named."""
    resources = named.resources()
    wanted = Selection(resources, principal or ()).filters()
    if resources.patterns():
        kind = PatternType.ANY if exactly else PatternType.MATCH
        wanted = [replace(each, pattern_type=kind) for each in wanted]

    async def action(admin: AsyncAdmin) -> list[AclBinding]:
        found: dict[AclBinding, None] = {}
        for each in wanted:
            found.update(dict.fromkeys(await describe_acls(admin.cluster, each)))
        return sorted(found)

    found = with_admin(connection, action)
    if json:
        print_json([_json(each) for each in found])
    elif found or not is_terminal():
        _print_rules(found)
    else:
        remark("no matching ACLs")


@app.command(
    epilog=examples(
        "tidelog acls add --principal User:alice --producer --topic orders",
        "tidelog acls add --principal User:bob --consumer --topic orders --group billing",
        "tidelog acls add --principal User:carol --operation READ --topic team- --prefixed",
        "tidelog acls add --principal 'User:*' --deny --operation DELETE --topic orders",
        "tidelog acls add --principal User:ops --operation ALL --cluster --host 10.0.0.7",
    ),
    no_args_is_help=True,
)
@grouped
def add(
    principal: Principals = None,
    operation: Operations = None,
    named: Named = NOTHING,
    prefixed: Prefixed = False,
    host: Hosts = None,
    deny: Deny = False,
    producer: ProducerRules = False,
    consumer: ConsumerRules = False,
    idempotent: Idempotent = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Allow somebody something, or deny it."""
    bindings = Selection(
        named.resources(prefixed=prefixed),
        principal or (),
        host or (),
        [parse_operation(each) for each in operation or ()],
        deny,
        producer,
        consumer,
        idempotent,
    ).bindings()
    results = with_admin(connection, lambda admin: create_acls(admin.cluster, bindings))
    added = [each.binding for each in results if each.error is None]
    if json:
        print_json([_json(each) for each in added])
    elif added:
        _print_rules(added)
    report_failures([each.error for each in results if each.error is not None])


@app.command(
    epilog=examples(
        "tidelog acls remove --principal User:alice --producer --topic orders",
        "tidelog acls remove --topic orders",
        "tidelog acls remove --principal User:carol --yes",
    ),
    no_args_is_help=True,
)
@grouped
def remove(
    principal: Principals = None,
    operation: Operations = None,
    named: Named = NOTHING,
    prefixed: Prefixed = False,
    host: Hosts = None,
    deny: Annotated[bool, typer.Option("--deny", help="Only deny rules.")] = False,
    producer: ProducerRules = False,
    consumer: ConsumerRules = False,
    idempotent: Idempotent = False,
    yes: Yes = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Remove access rules: all that match what is said; what is not said may be anything."""
    resources = named.resources(prefixed=prefixed)
    if not resources.patterns() and not principal:
        raise WrongUsage("specify which ACLs: a resource such as --topic orders, or --principal User:alice")
    wanted = Selection(
        resources,
        principal or (),
        host or (),
        [parse_operation(each) for each in operation or ()],
        deny,
        producer,
        consumer,
        idempotent,
    ).filters(Permission.DENY if deny else Permission.ANY)

    async def action(admin: AsyncAdmin) -> list[AclBinding]:
        if not yes and is_terminal():
            found = [binding for each in wanted for binding in await describe_acls(admin.cluster, each)]
            if not found:
                return []
            _print_rules(sorted(set(found)))
            confirm(f"Remove {counted(len(set(found)), 'rule')}?")
        deleted = await delete_acls(admin.cluster, wanted)
        report_failures(
            [each.error for each in deleted if each.error is not None]
            + [rule.error for each in deleted for rule in each.results if rule.error is not None]
        )
        return sorted({rule.binding for each in deleted for rule in each.results})

    removed = with_admin(connection, action)
    if json:
        print_json([_json(each) for each in removed])
    elif is_terminal():
        remark(f"{counted(len(removed), 'rule')} removed" if removed else "no matching ACLs")
    else:
        _print_rules(removed)


@app.command(
    "explain",
    epilog=examples(
        "tidelog acls explain --principal User:alice --operation READ --topic orders",
        "tidelog acls explain --principal User:alice --topic orders --host 10.0.0.7",
        "tidelog acls explain --principal User:bob --consumer --topic orders --group billing",
    ),
    no_args_is_help=True,
)
@grouped
def explain_access(
    principal: Annotated[
        str, typer.Option("--principal", metavar="User:NAME", help="The principal to check.")
    ],
    operation: Operations = None,
    named: Named = NOTHING,
    host: Annotated[
        str,
        typer.Option(
            "--host", metavar="IP", help="The client address; default: an address that no ACL names."
        ),
    ] = WILDCARD,
    producer: ProducerRules = False,
    consumer: ConsumerRules = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Say whether somebody may do something, and which rule says so; without --operation, everything."""
    resources = named.resources()
    if producer or consumer or operation:
        operations = [parse_operation(each) for each in operation or ()]
        selection = Selection(resources, operations=operations, producer=producer, consumer=consumer)
        asked = selection.access()
    else:
        patterns = resources.patterns()
        if not patterns:
            raise WrongUsage("specify a resource, such as --topic orders or --cluster")
        asked = [(pattern, each) for pattern in patterns for each in SUPPORTED_OPERATIONS[pattern.type]]
    for pattern, each in asked:
        check_operation(pattern.type, each)
        if each is Operation.ALL:
            raise WrongUsage("ALL is valid only in ACLs; omit --operation to check every operation")
    who = parse_principal(principal_text(principal))
    answers, access = with_admin(connection, lambda admin: explain(admin, who, host, asked))
    if json:
        print_json([_explanation_json(each) for each in answers])
        return
    if len(answers) == 1:
        print(printable(_sentence(str(who), host, answers[0])))
    else:
        rows = [
            (operation.name, pattern.type.name, pattern.name, decision.allowed, str(decision.reason))
            for pattern, operation, decision, _ in answers
        ]
        print_table(("OPERATION", "TYPE", "NAME", "ALLOWED", "BECAUSE"), rows)
    _remark_unknown(access)


def _remark_unknown(access: BrokerAccess) -> None:
    if access.super_users is None:
        remark(
            "the broker does not report super.users and allow.everyone.if.no.acl.found; this result "
            "is based on the ACLs only"
        )


def _sentence(who: str, host: str, answer: Explanation) -> str:
    pattern, operation, decision, _ = answer
    what = pattern.type.name.lower().replace("_", " ")
    name = "" if pattern.type.name == "CLUSTER" else f" {pattern.name}"
    where = "" if host == WILDCARD else f" from {host}"
    may = "may" if decision.allowed else "may not"
    return f"{who} {may} {operation.name} {what}{name}{where}: {decision.reason}"


def _print_rules(bindings: Iterable[AclBinding]) -> None:
    rows = [
        (
            entry.principal,
            entry.permission.name,
            entry.operation.name,
            pattern.type.name,
            pattern.name,
            pattern.pattern_type.name,
            entry.host,
        )
        for pattern, entry in bindings
    ]
    columns = ("PRINCIPAL", "PERMISSION", "OPERATION", "TYPE", "NAME", "PATTERN", "HOST")
    print_table(columns, rows, optional=("HOST", "PATTERN"))


def _json(binding: AclBinding) -> dict[str, object]:
    pattern, entry = binding
    return {
        "principal": entry.principal,
        "permission": entry.permission.name,
        "operation": entry.operation.name,
        "resource_type": pattern.type.name,
        "resource_name": pattern.name,
        "pattern_type": pattern.pattern_type.name,
        "host": entry.host,
    }


def _explanation_json(answer: Explanation) -> dict[str, object]:
    reason = answer.decision.reason
    return {
        "operation": answer.operation.name,
        "resource_type": answer.pattern.type.name,
        "resource_name": answer.pattern.name,
        "allowed": answer.decision.allowed,
        "because": str(reason),
        "rule": _json(reason) if isinstance(reason, AclBinding) else None,
    }
