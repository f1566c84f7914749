"""The authorizer once more, slowly: Kafka's rules word for word, over a plain list of bindings.

No index, no order, nothing shared with ``tidelog.security.acls.authorizer`` but the names of things.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.security.acls.model import AclBinding, Operation, PatternType, Permission, ResourceType


class PlainModel:
    def __init__(
        self, bindings: Sequence[AclBinding], super_users: Sequence[str], *, open_without_rules: bool
    ) -> None:
        self.bindings = bindings
        self.super_users = super_users
        self.open_without_rules = open_without_rules

    def allows(self, who: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        if who in self.super_users:
            return True
        covering = [each for each in self.bindings if _covers(each, kind, name)]
        if not covering:
            return self.open_without_rules
        mine = [each for each in covering if _names(each, who, host)]
        for each in mine:
            if each.entry.permission == Permission.DENY and each.entry.operation in (
                operation,
                Operation.ALL,
            ):
                return False
        return any(
            each.entry.permission == Permission.ALLOW and _implies(each.entry.operation, operation)
            for each in mine
        )

    def allows_any(self, who: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        if who in self.super_users:
            return True
        mine = [
            each
            for each in self.bindings
            if each.pattern.type == kind
            and _names(each, who, host)
            and each.entry.operation in (operation, Operation.ALL)
        ]
        denies = [each.pattern for each in mine if each.entry.permission == Permission.DENY]
        allows = [each.pattern for each in mine if each.entry.permission == Permission.ALLOW]
        if any(deny.pattern_type == PatternType.LITERAL and deny.name == "*" for deny in denies):
            return False
        if self.open_without_rules:
            return True
        for allow in allows:
            if allow.pattern_type == PatternType.LITERAL and allow.name == "*":
                return True
            dominated = any(
                deny.pattern_type == PatternType.PREFIXED and allow.name.startswith(deny.name)
                for deny in denies
            )
            same = allow.pattern_type == PatternType.LITERAL and any(deny == allow for deny in denies)
            if not dominated and not same:
                return True
        return False


def _covers(binding: AclBinding, kind: ResourceType, name: str) -> bool:
    pattern = binding.pattern
    if pattern.type != kind:
        return False
    if pattern.pattern_type == PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in ("*", name)


def _names(binding: AclBinding, who: str, host: str) -> bool:
    return binding.entry.principal in ("User:*", who) and binding.entry.host in ("*", host)


def _implies(allowed: Operation, wanted: Operation) -> bool:
    if allowed in (wanted, Operation.ALL):
        return True
    if wanted == Operation.DESCRIBE:
        return allowed in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
    return wanted == Operation.DESCRIBE_CONFIGS and allowed == Operation.ALTER_CONFIGS
