"""May somebody do something, and which rule decides: decided here, by the code that our brokers decide with.

Kafka's authorizers decide alike (see ``security/acls/authorizer``). Super users and what holds for resources
without rules are options of brokers; Apache Kafka tells them to nobody, and then the answer says so.
"""

from __future__ import annotations

import ipaddress

import msgspec

from tidelog.client.admin._access_explanation import Explanation, explain
from tidelog.console.api.acls_api import AclRow, acl_row
from tidelog.console.api.endpoint import Call, reads, require_whole_cluster
from tidelog.console.refusal import Refusal
from tidelog.security.acls.authorizer import (
    CLOSED_WITHOUT_RULES,
    NOT_ALLOWED,
    OPEN_WITHOUT_RULES,
    SUPER_USER,
)
from tidelog.security.acls.model import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    Operation,
    ResourcePattern,
    ResourceType,
)
from tidelog.security.acls.supported import SUPPORTED_OPERATIONS
from tidelog.security.principal import parse_principal

_REASONS = {
    SUPER_USER: "super user",
    OPEN_WITHOUT_RULES: "open without rules",
    CLOSED_WITHOUT_RULES: "no rule",
    NOT_ALLOWED: "not allowed",
}


class ExplainQuery(msgspec.Struct, forbid_unknown_fields=True):
    """A question; without an operation all that make sense on the resource."""

    principal: str
    resource: str
    name: str = ""
    """Of the resource; the cluster needs none."""
    operation: str = ""
    host: str = WILDCARD
    """An IP address; without it, one that no rule names."""


class WeighedRule(msgspec.Struct, frozen=True):
    """A rule that covers the resource, and what it says to the question."""

    rule: AclRow
    effect: str
    decides: bool


class Answer(msgspec.Struct, frozen=True):
    """One operation; ``reason`` is ``rule`` or why no rule decides, ``because`` is a sentence."""

    operation: str
    allowed: bool
    reason: str
    because: str
    rules: list[WeighedRule]


class Explained(msgspec.Struct, frozen=True):
    """The answers, and what of the brokers is known; null: they do not tell it."""

    answers: list[Answer]
    super_users: list[str] | None
    open_without_rules: bool | None


@reads(
    "/clusters/{cluster}/acls/explain",
    "Whether a principal may perform an operation, and which ACL decides.",
    ExplainQuery,
)
async def explain_access(call: Call, asked: ExplainQuery) -> Explained:
    """By the rules that cover the resource now."""
    require_whole_cluster(call)
    pattern = _pattern(asked)
    operations = _operations(asked, pattern.type)
    try:
        who = parse_principal(asked.principal.strip())
    except ValueError as error:
        raise Refusal(str(error)) from None
    host = _host(asked.host.strip() or WILDCARD)
    answers, access = await explain(call.cluster.admin, who, host, [(pattern, each) for each in operations])
    return Explained(
        [_answer(each) for each in answers],
        None if access.super_users is None else [str(each) for each in access.super_users],
        access.open_without_rules,
    )


def _answer(explanation: Explanation) -> Answer:
    decision = explanation.decision
    rule = decision.reason if isinstance(decision.reason, AclBinding) else None
    return Answer(
        explanation.operation.name.lower(),
        decision.allowed,
        "rule" if rule is not None else _REASONS[str(decision.reason)],
        str(decision.reason),
        [
            WeighedRule(acl_row(each.binding), each.effect.value, each.binding == rule)
            for each in explanation.weighed
        ],
    )


def _pattern(asked: ExplainQuery) -> ResourcePattern:
    kinds = {each.name.lower(): each for each in SUPPORTED_OPERATIONS}
    kind = kinds.get(asked.resource.lower())
    if kind is None:
        raise Refusal(f"invalid resource type {asked.resource!r}: choose from {', '.join(kinds)}")
    if kind is ResourceType.CLUSTER:
        return ResourcePattern(kind, CLUSTER_NAME)
    if not asked.name:
        raise Refusal(f"specify the name of the {asked.resource.lower().replace('_', ' ')}")
    return ResourcePattern(kind, asked.name)


def _operations(asked: ExplainQuery, kind: ResourceType) -> tuple[Operation, ...]:
    supported = SUPPORTED_OPERATIONS[kind]
    if not asked.operation:
        return supported
    found = next((each for each in supported if each.name == asked.operation.upper()), None)
    if found is None:
        names = ", ".join(each.name.lower() for each in supported)
        raise Refusal(f"{asked.operation!r} does not apply to a {kind.name.lower()}: choose from {names}")
    return (found,)


def _host(text: str) -> str:
    if text != WILDCARD:
        try:
            ipaddress.ip_address(text.strip("[]").partition("%")[0])
        except ValueError:
            raise Refusal(f"invalid IP address {text!r}: ACLs match addresses, not host names") from None
    return text


ENDPOINTS = (explain_access,)
