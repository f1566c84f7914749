"""What people say about access rules on the command line, as rules and filters.

Resources are named by ``--topic``, ``--group`` and the like; ``--producer`` and ``--consumer`` stand for all
that such a client needs. Pure: talks to nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from tidelog.cli.failure import WrongUsage
from tidelog.security.acls.filters import AclFilter
from tidelog.security.acls.model import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tidelog.security.acls.supported import SUPPORTED_OPERATIONS
from tidelog.security.principal import USER, parse_principal

_TOPIC_OF_PRODUCER = (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
_ID_OF_PRODUCER = (Operation.WRITE, Operation.DESCRIBE)
_TOPIC_OF_CONSUMER = (Operation.READ, Operation.DESCRIBE)
_NAME_A_RESOURCE = "specify a resource: --topic, --group, --cluster, --transactional-id, --user or --token"


@dataclass(frozen=True)
class Resources:
    """The resources that a command names."""

    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    users: Sequence[str] = ()
    tokens: Sequence[str] = ()
    cluster: bool = False
    prefixed: bool = False

    def patterns(self) -> list[ResourcePattern]:
        """Each of them, as rules name it."""
        by_type = {
            ResourceType.TOPIC: self.topics,
            ResourceType.GROUP: self.groups,
            ResourceType.TRANSACTIONAL_ID: self.transactional_ids,
            ResourceType.USER: [principal_text(each) for each in self.users],
            ResourceType.DELEGATION_TOKEN: self.tokens,
        }
        pattern_type = PatternType.PREFIXED if self.prefixed else PatternType.LITERAL
        found = [
            ResourcePattern(kind, name, pattern_type) for kind, names in by_type.items() for name in names
        ]
        if self.prefixed and any(pattern.name == WILDCARD for pattern in found):
            raise WrongUsage("'*' already matches every name: omit --prefixed")
        if self.cluster:
            found.append(ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME))
        return found


@dataclass(frozen=True)
class Selection:
    """Whose rules, about what."""

    resources: Resources
    principals: Sequence[str] = ()
    hosts: Sequence[str] = ()
    operations: Sequence[Operation] = ()
    deny: bool = False
    producer: bool = False
    consumer: bool = False
    idempotent: bool = False

    def bindings(self) -> list[AclBinding]:
        """The rules to add; raises :class:`WrongUsage` if something is missing."""
        if not self.principals:
            raise WrongUsage("specify --principal, such as User:alice (User:* is everyone)")
        permission = Permission.DENY if self.deny else Permission.ALLOW
        return [
            AclBinding(pattern, AclEntry(principal_text(principal), host, operation, permission))
            for pattern, operation in self.access()
            for principal, host in product(self.principals, self.hosts or (WILDCARD,))
        ]

    def filters(self, permission: Permission = Permission.ANY) -> list[AclFilter]:
        """The rules to list or remove: whatever is not said may be anything."""
        patterns = self.resources.patterns()
        if self.producer or self.consumer or self.idempotent:
            access: list[tuple[ResourcePattern | None, Operation]] = [*self.access()]
        else:
            operations = self.operations or (Operation.ANY,)
            access = [(pattern, each) for pattern in patterns or (None,) for each in operations]
        return [
            AclFilter(
                ResourceType.ANY if pattern is None else pattern.type,
                None if pattern is None else pattern.name,
                PatternType.ANY if pattern is None else pattern.pattern_type,
                None if principal is None else principal_text(principal),
                host,
                operation,
                permission,
            )
            for pattern, operation in access
            for principal, host in product(self.principals or (None,), self.hosts or (None,))
        ]

    def access(self) -> list[tuple[ResourcePattern, Operation]]:
        """Each resource with each operation on it."""
        patterns = self.resources.patterns()
        if self.producer or self.consumer or self.idempotent:
            return list(dict.fromkeys(self._of_clients(patterns)))
        if not patterns:
            raise WrongUsage(_NAME_A_RESOURCE)
        if not self.operations:
            raise WrongUsage(
                "specify --operation, such as READ (ALL is every operation), or --producer or --consumer"
            )
        for pattern, operation in product(patterns, self.operations):
            check_operation(pattern.type, operation)
        return list(product(patterns, self.operations))

    def _of_clients(self, patterns: list[ResourcePattern]) -> Iterator[tuple[ResourcePattern, Operation]]:
        if self.operations:
            raise WrongUsage("--producer and --consumer imply their operations: omit --operation")
        topics = [each for each in patterns if each.type is ResourceType.TOPIC]
        groups = [each for each in patterns if each.type is ResourceType.GROUP]
        ids = [each for each in patterns if each.type is ResourceType.TRANSACTIONAL_ID]
        if not topics:
            raise WrongUsage("--producer and --consumer require --topic")
        if self.consumer and not groups:
            raise WrongUsage("--consumer requires --group; '*' is every group")
        if self.idempotent and not self.producer:
            raise WrongUsage("--idempotent requires --producer")
        if self.producer:
            yield from product(topics, _TOPIC_OF_PRODUCER)
            yield from product(ids, _ID_OF_PRODUCER)
        if self.idempotent:
            yield ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME), Operation.IDEMPOTENT_WRITE
        if self.consumer:
            yield from product(topics, _TOPIC_OF_CONSUMER)
            yield from product(groups, (Operation.READ,))


def principal_text(text: str) -> str:
    """``User:alice``; a name without a type is a user's."""
    try:
        return str(parse_principal(text if ":" in text else f"{USER}:{text}"))
    except ValueError as error:
        raise WrongUsage(str(error)) from None


def parse_operation(text: str) -> Operation:
    """An operation by its name, in any case and with dashes or underscores."""
    name = text.strip().upper().replace("-", "_")
    known = [each.name for each in Operation if each > Operation.ANY]
    if name not in known:
        raise WrongUsage(f"unknown operation {text!r}; choose from {', '.join(known)}")
    return Operation[name]


def check_operation(kind: ResourceType, operation: Operation) -> None:
    """Refuse an operation that nobody can do to a resource of this type."""
    supported = SUPPORTED_OPERATIONS[kind]
    if operation is not Operation.ALL and operation not in supported:
        names = ", ".join(each.name for each in supported)
        what = kind.name.lower().replace("_", " ")
        raise WrongUsage(f"{operation.name} does not apply to a {what}; choose from {names} or ALL")
