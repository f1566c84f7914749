"""May somebody do something, and which rule says so: for ``tidelog acls explain`` and the console.

Rules are read from the cluster and decided here, by the code that brokers decide with. Super users and
``allow.everyone.if.no.acl.found`` are asked of a broker; Apache Kafka keeps these to itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.client.admin._acls import describe_acls
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.resources import ConfigResource, ResourceType
from tidelog.security.acls.authorizer import Authorizer, Decision, Question, Weighed
from tidelog.security.acls.filters import AclFilter
from tidelog.security.acls.model import Operation, PatternType, ResourcePattern
from tidelog.security.acls.rule_index import RuleIndex
from tidelog.security.principal import Principal, parse_principal

_SUPER_USERS = "super.users"
_OPEN = "allow.everyone.if.no.acl.found"


class Explanation(NamedTuple):
    """What was asked for, and the answer."""

    pattern: ResourcePattern
    operation: Operation
    decision: Decision
    weighed: tuple[Weighed, ...]
    """Every rule that covers the resource, with what it says."""


class BrokerAccess(NamedTuple):
    """What a broker says of its authorizer; None where it does not."""

    super_users: tuple[Principal, ...] | None
    open_without_rules: bool | None


async def explain(
    admin: AsyncAdmin, principal: Principal, host: str, asked: Sequence[tuple[ResourcePattern, Operation]]
) -> tuple[list[Explanation], BrokerAccess]:
    """Answer each question by the rules of the cluster."""
    rules = RuleIndex()
    for pattern in dict.fromkeys(pattern for pattern, _ in asked):
        wanted = AclFilter(pattern.type, pattern.name, PatternType.MATCH)
        found = await describe_acls(admin.cluster, wanted)
        for each in dict.fromkeys(binding.pattern for binding in found):
            rules.put(each, [entry for covering, entry in found if covering == each])
    access = await _broker_access(admin)
    authorizer = Authorizer(
        rules, access.super_users or (), open_without_rules=bool(access.open_without_rules)
    )
    answers = []
    for pattern, operation in asked:
        question = Question(principal, host, operation)
        answers.append(
            Explanation(
                pattern,
                operation,
                authorizer.decide(question, pattern.type, pattern.name),
                tuple(authorizer.weigh(question, pattern.type, pattern.name)),
            )
        )
    return answers, access


async def _broker_access(admin: AsyncAdmin) -> BrokerAccess:
    nodes = (await admin.describe_cluster()).nodes
    broker = ConfigResource(ResourceType.BROKER, str(nodes[0].id))
    (described,) = await admin.describe_configs([broker], names=[_SUPER_USERS, _OPEN])
    if described.error is not None:
        return BrokerAccess(None, None)
    told = {entry.name: entry for entry in described.entries}
    if any(entry.value is None for entry in told.values()):
        # As Apache Kafka does it, for which these are options of somebody else's.
        return BrokerAccess(None, None)
    text = told[_SUPER_USERS].value if _SUPER_USERS in told else ""
    users = tuple(parse_principal(each.strip()) for each in (text or "").split(";") if each.strip())
    return BrokerAccess(users, _OPEN in told and told[_OPEN].value == "true")
