"""The decision whether somebody may do something, and the rule that it follows from.

Kafka's order (``AclAuthorizer`` and ``StandardAuthorizer`` agree on it): a super user may do everything. A
resource without any rule is open or closed as ``allow.everyone.if.no.acl.found`` says; it has rules as soon
as one pattern covers it, whomever those rules name. Otherwise a rule that denies decides, then one that
allows, and without either it is denied. To be allowed to read, write, delete or alter implies to describe,
and to alter configs to describe them; nothing follows from being denied.

Pure: no clock, no logs, nothing kept between questions. ``broker/access/authorization`` keeps answers and
logs.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tidelog.security.acls.model import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    is_from,
)
from tidelog.security.acls.rule_index import RuleIndex
from tidelog.security.principal import Principal

SUPER_USER: Final = "a super user may do everything"
OPEN_WITHOUT_RULES: Final = "no rule covers the resource, and allow.everyone.if.no.acl.found is true"
CLOSED_WITHOUT_RULES: Final = "no rule covers the resource"
NOT_ALLOWED: Final = "rules cover the resource, and none of them allows this"
OPEN_TYPE: Final = "no rule denies it on all resources, and allow.everyone.if.no.acl.found is true"
NOT_ALLOWED_ANYWHERE: Final = "no rule allows it on any resource without another that denies it there"

_ALLOWED_BY: Final[dict[Operation, frozenset[Operation]]] = {
    operation: frozenset({operation, Operation.ALL}) for operation in Operation
} | {
    Operation.DESCRIBE: frozenset(
        {
            Operation.DESCRIBE,
            Operation.READ,
            Operation.WRITE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.ALL,
        }
    ),
    Operation.DESCRIBE_CONFIGS: frozenset(
        {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL}
    ),
}


class Question(NamedTuple):
    """May ``principal``, coming from ``host``, do ``operation``."""

    principal: Principal
    host: str
    operation: Operation


class Decision(NamedTuple):
    """An answer, and what it follows from: a rule, or a sentence where there is none."""

    allowed: bool
    reason: AclBinding | str


class Effect(enum.StrEnum):
    """What a rule that covers a resource has to do with a question; the first reason why it has nothing."""

    DENIES = "denies"
    ALLOWS = "allows"
    OTHER_PRINCIPAL = "other principal"
    OTHER_HOST = "other host"
    OTHER_OPERATION = "other operation"


class Weighed(NamedTuple):
    """A rule that covers the resource, and what it says to a question."""

    binding: AclBinding
    effect: Effect


class Authorizer:
    """Decides by rules, which whoever keeps them changes under it."""

    def __init__(
        self, rules: RuleIndex, super_users: Iterable[Principal] = (), *, open_without_rules: bool = False
    ) -> None:
        self.rules = rules
        self._super_users = frozenset(super_users)
        self._open_without_rules = open_without_rules

    def is_super_user(self, principal: Principal) -> bool:
        """Whether no rule binds this principal."""
        return principal in self._super_users

    def decide(self, question: Question, kind: ResourceType, name: str) -> Decision:
        """Whether it may be done to the resource of this name."""
        principal, host, operation = question
        if principal in self._super_users:
            return Decision(True, SUPER_USER)
        who = str(principal)
        allowed_by = _ALLOWED_BY[operation]
        allowing: AclBinding | None = None
        covered = False
        for rules in self.rules.applying(kind, name):
            covered = True
            for principal_text in (who, WILDCARD_PRINCIPAL):
                for entry in rules.of(principal_text):
                    if not is_from(entry.host, host):
                        continue
                    if entry.permission is Permission.DENY:
                        if entry.operation in (operation, Operation.ALL):
                            return Decision(False, AclBinding(rules.pattern, entry))
                    elif allowing is None and entry.operation in allowed_by:
                        allowing = AclBinding(rules.pattern, entry)
        if allowing is not None:
            return Decision(True, allowing)
        if covered:
            return Decision(False, NOT_ALLOWED)
        if self._open_without_rules:
            return Decision(True, OPEN_WITHOUT_RULES)
        return Decision(False, CLOSED_WITHOUT_RULES)

    def weigh(self, question: Question, kind: ResourceType, name: str) -> list[Weighed]:
        """Every rule that covers the resource, with what it says: for people; :meth:`decide` decides."""
        return [
            Weighed(AclBinding(rules.pattern, entry), effect_of(entry, question))
            for rules in self.rules.applying(kind, name)
            for entry in rules.entries
        ]

    def decide_any(self, question: Question, kind: ResourceType) -> Decision:
        """Whether it may be done to some resource of the type, whether that exists or not (KIP-679).

        A rule that allows counts unless one that denies covers all that it covers: a literal one of the same
        name, or a prefix of its name or prefix. Here nothing is implied by another operation.
        """
        if question.principal in self._super_users:
            return Decision(True, SUPER_USER)
        denied_names: set[str] = set()
        for binding in self._naming(question, kind, PatternType.LITERAL, Permission.DENY):
            if binding.pattern.name == WILDCARD:
                return Decision(False, binding)
            denied_names.add(binding.pattern.name)
        if self._open_without_rules:
            return Decision(True, OPEN_TYPE)
        denied_prefixes = {
            binding.pattern.name
            for binding in self._naming(question, kind, PatternType.PREFIXED, Permission.DENY)
        }
        for binding in self._naming(question, kind, PatternType.PREFIXED, Permission.ALLOW):
            if not _begins_with_any(binding.pattern.name, denied_prefixes):
                return Decision(True, binding)
        for binding in self._naming(question, kind, PatternType.LITERAL, Permission.ALLOW):
            name = binding.pattern.name
            is_denied = name in denied_names or _begins_with_any(name, denied_prefixes)
            if name == WILDCARD or not is_denied:
                return Decision(True, binding)
        return Decision(False, NOT_ALLOWED_ANYWHERE)

    def _naming(
        self, question: Question, kind: ResourceType, pattern_type: PatternType, permission: Permission
    ) -> Iterator[AclBinding]:
        """The rules that allow or deny it to the principal, on whatever."""
        who = str(question.principal)
        for principal in (who, WILDCARD_PRINCIPAL):
            for rules in self.rules.naming(principal, kind, pattern_type):
                for entry in rules.of(principal):
                    if entry.permission is permission and _is_about(entry, question):
                        yield AclBinding(rules.pattern, entry)


def effect_of(entry: AclEntry, question: Question) -> Effect:
    """What a rule says to a question about a resource that it covers."""
    if entry.principal not in (str(question.principal), WILDCARD_PRINCIPAL):
        return Effect.OTHER_PRINCIPAL
    if not is_from(entry.host, question.host):
        return Effect.OTHER_HOST
    if entry.permission is Permission.DENY:
        denies = entry.operation in (question.operation, Operation.ALL)
        return Effect.DENIES if denies else Effect.OTHER_OPERATION
    return Effect.ALLOWS if entry.operation in _ALLOWED_BY[question.operation] else Effect.OTHER_OPERATION


def _is_about(entry: AclEntry, question: Question) -> bool:
    return is_from(entry.host, question.host) and entry.operation in (question.operation, Operation.ALL)


def _begins_with_any(name: str, prefixes: set[str]) -> bool:
    return bool(prefixes) and any(name[:length] in prefixes for length in range(1, len(name) + 1))
