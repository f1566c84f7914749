"""Broker options about who may do what, and the rules over them.

Part of the table in ``broker_options``. ``super.users`` and ``allow.everyone.if.no.acl.found`` are options of
Kafka's authorizers and not of its broker, so that they are in none of its tables; DescribeConfigs tells them
where they are set. A broker never ignores what looks like protection: an authorizer of another class, one
whose rules are in another ZooKeeper, and super users without an authorizer stop its start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tidelog.custom_class import is_custom_class
from tidelog.options import Option, option
from tidelog.security.acls.model import WILDCARD
from tidelog.security.principal import USER, Principal, parse_principal

ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AUTHORIZER_CLASSES = (ACL_AUTHORIZER, STANDARD_AUTHORIZER, "kafka.security.auth.SimpleAclAuthorizer")
"""Kafka's own, which decide the same rules in the same way; the last is an older name of the first."""

OF_AUTHORIZERS = frozenset({"allow.everyone.if.no.acl.found", "super.users"})
"""What Kafka's authorizers read by themselves: listed only where it was given."""

_ELSEWHERE = "authorizer.zookeeper."
_HARMLESS_ELSEWHERE = frozenset(
    f"{_ELSEWHERE}{name}"
    for name in ("connection.timeout.ms", "session.timeout.ms", "max.in.flight.requests")
)

AUTHORIZER_OPTIONS: tuple[Option, ...] = (
    option(
        "authorizer.class.name",
        "string",
        "",
        f"What decides who may do what: `{ACL_AUTHORIZER}` or `{STANDARD_AUTHORIZER}`, which are the same "
        "here. Access rules are in the metadata either way, and anything that no rule allows is denied. "
        "Or an authorizer of your own, as a Python class: `package.module:Class`, a subclass of "
        "`tidelog.security.acls.custom_authorizer.CustomAuthorizer`. Empty: everybody may do everything.",
        importance="low",
    ),
    option(
        "super.users",
        "string",
        "",
        "Principals that no access rule binds, with semicolons between them: `User:admin;User:CN=kafka`.",
        importance="medium",
    ),
    option(
        "allow.everyone.if.no.acl.found",
        "boolean",
        False,
        "Whether a resource that no access rule covers is open to everybody, and not to super users alone.",
        importance="medium",
    ),
    option(
        "tidelog.audit.log.file",
        "string",
        None,
        "A file for the audit log: a line of JSON for every denial, for what is allowed when it is decided, "
        "and for every change of an access rule. It may be renamed while the broker runs.",
        importance="low",
        internal=True,
    ),
    option(
        "tidelog.audit.log.topic",
        "string",
        None,
        "A topic for the audit log, whose records are the lines that tidelog.audit.log.file has. It is made "
        "if it is missing; nobody but brokers and super users can change anything in it.",
        importance="low",
        internal=True,
    ),
)

_AUDIT_LOGS = ("tidelog.audit.log.file", "tidelog.audit.log.topic")
_TOPIC_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__cluster_metadata"})


def super_users(text: str) -> list[Principal]:
    """``super.users``; raises ``ValueError`` with a sentence for people.

    Names hold commas, as those of certificates do. Who could never be anybody is refused; Kafka takes it.
    """
    named = [parse_principal(each.strip()) for each in text.split(";") if each.strip()]
    for each in named:
        if each.type != USER or each.name == WILDCARD or f",{USER}:" in each.name.replace(" ", ""):
            raise ValueError(f"'{each}' is nobody's name: write each user as User:alice")
    return named


def authorizer_rules(values: Mapping[str, object], given: Mapping[str, str]) -> Iterator[str]:
    """A sentence for everything about access that cannot be honoured."""
    name = str(values["authorizer.class.name"]).strip()
    if name and name not in AUTHORIZER_CLASSES and not is_custom_class(name):
        yield (
            f"authorizer.class.name: {name} is a class of its own, and Java's; write {ACL_AUTHORIZER} or "
            f"{STANDARD_AUTHORIZER} for access rules as Kafka has them, or a Python class as MODULE:CLASS"
        )
    if is_custom_class(name) and values["allow.everyone.if.no.acl.found"]:
        yield (
            f"allow.everyone.if.no.acl.found: it is about access rules, which {name} replaces; remove the "
            "option"
        )
    try:
        named = super_users(str(values["super.users"]))
    except ValueError as error:
        yield f"super.users: {error}, and several with semicolons between them"
        named = []
    if not name and named:
        yield _without_authorizer("super.users")
    for each in _AUDIT_LOGS:
        if not name and values[each] is not None:
            yield _without_authorizer(each)
    topic = values["tidelog.audit.log.topic"]
    if topic is not None and (not _TOPIC_NAME.fullmatch(str(topic)) or topic in _INTERNAL_TOPICS):
        yield (
            f"tidelog.audit.log.topic: {topic!r} cannot be the name of a topic for it; use letters, digits, "
            "dots, underscores and dashes"
        )
    closes = not values["allow.everyone.if.no.acl.found"]
    if not name and closes and "allow.everyone.if.no.acl.found" in given:
        yield _without_authorizer("allow.everyone.if.no.acl.found")
    elsewhere = sorted(
        each
        for each, value in given.items()
        if each.startswith(_ELSEWHERE) and each not in _HARMLESS_ELSEWHERE and value.strip()
    )
    if elsewhere:
        yield (
            f"{', '.join(elsewhere)}: access rules are kept with all other metadata, and not in a ZooKeeper "
            "of their own; copy the nodes below /kafka-acl and /kafka-acl-extended to the one of "
            "zookeeper.connect and remove the options"
        )


def _without_authorizer(name: str) -> str:
    return (
        f"{name}: without authorizer.class.name everybody may do everything; set that to {ACL_AUTHORIZER}, "
        f"or remove {name}"
    )
