"""Access rules as Kafka has them: resources, patterns over their names, operations, and who may do what.

Numbers are those of the protocol, ``label`` is how Kafka writes the thing into ZooKeeper. Code 0 of each is
something that this release does not know; 1 stands for anything, in filters alone. Everything about ACLs uses
this module: the broker's handlers, what keeps rules, the client and the commands.
"""

from __future__ import annotations

import enum
import socket
from typing import Final, NamedTuple

WILDCARD: Final = "*"
"""As the name of a literal pattern: every resource of the type; as a host: every host."""
WILDCARD_PRINCIPAL: Final = "User:*"
"""Everybody, whatever the type of his principal."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The one resource of the type ``CLUSTER``."""


class _Coded(enum.IntEnum):
    """An enumeration of the protocol, one of whose members stands for codes of the future."""

    @property
    def label(self) -> str:
        """The name as Kafka writes it into ZooKeeper: ``TransactionalId``."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class ResourceType(_Coded):
    """The kinds of resources that access rules are about; ``ANY`` is for filters.

    Example:
        ResourcePattern(ResourceType.TOPIC, "orders")
    """

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Coded):
    """How the name of a pattern is compared with a resource's; ``ANY`` and ``MATCH`` are for filters.

    Example:
        ResourcePattern(ResourceType.TOPIC, "orders-", PatternType.PREFIXED)
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    """In filters: all patterns that a resource of this name falls under."""
    LITERAL = 3
    PREFIXED = 4


class Operation(_Coded):
    """The operations that access rules are about; ``ANY`` is for filters.

    Example:
        AclEntry("User:ann", "*", Operation.READ, Permission.ALLOW)
    """

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(_Coded):
    """Whether a rule allows or denies; ``ANY`` is for filters.

    Example:
        AclFilter(permission=Permission.DENY)
    """

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


STORED_RESOURCE_TYPES: Final = tuple(each for each in ResourceType if each > ResourceType.ANY)
STORED_PATTERN_TYPES: Final = (PatternType.LITERAL, PatternType.PREFIXED)


class ResourcePattern(NamedTuple):
    """The resources that a rule is about.

    Args:
        type: Their kind.
        name: Their name, its beginning, or ``*`` for all.
        pattern_type: Whether ``name`` is the whole name or its beginning.

    Example:
        ResourcePattern(ResourceType.TOPIC, "orders")
    """

    type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return f"{self.type.name}:{self.pattern_type.name}:{self.name}"


CLUSTER: Final = ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)


class AclEntry(NamedTuple):
    """Who may, or may not, do what, from where.

    Example:
        AclEntry("User:ann", "*", Operation.READ, Permission.ALLOW)
    """

    principal: str
    """``User:alice``, or :data:`WILDCARD_PRINCIPAL`."""
    host: str
    """An IP address as text, in whatever way it is written, or :data:`WILDCARD`."""
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        where = "any host" if self.host == WILDCARD else f"host {self.host}"
        return f"{self.permission.name} {self.operation.name} to {self.principal} from {where}"


class AclBinding(NamedTuple):
    """One access rule.

    Args:
        pattern: The resources that it is about.
        entry: Who may do what with them.

    Example:
        AclBinding(
            ResourcePattern(ResourceType.TOPIC, "orders"),
            AclEntry("User:ann", "*", Operation.READ, Permission.ALLOW),
        )
    """

    pattern: ResourcePattern
    entry: AclEntry

    def __str__(self) -> str:
        return f"{self.entry} on {self.pattern}"


def is_from(written: str, host: str) -> bool:
    """Whether a client that comes from ``host`` comes from the host that a rule names.

    Java writes IPv6 addresses without leaving anything out (``0:0:0:0:0:0:0:1``), and so do rules that were
    made for Kafka; the operating system writes ``::1``. A rule that denies must not miss a client by that.
    """
    if written in (host, WILDCARD):
        return True
    return ":" in written and _address(written) == _address(host)


def _address(text: str) -> tuple[bytes, str] | str:
    """An address as what it means; an IPv4 one that is written as IPv6 is that. Other text is itself."""
    bare, _, zone = text.strip().strip("[]").partition("%")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    try:
        packed = socket.inet_pton(family, bare)
    except (OSError, ValueError):
        return text
    return packed.removeprefix(_IPV4_IN_IPV6), zone


_IPV4_IN_IPV6 = bytes(10) + b"\xff\xff"


def resource_type_of(code: int) -> ResourceType:
    """The type with this code; UNKNOWN for one of the future."""
    return ResourceType(code) if code in _RESOURCE_TYPES else ResourceType.UNKNOWN


def pattern_type_of(code: int) -> PatternType:
    """The pattern type with this code; UNKNOWN for one of the future."""
    return PatternType(code) if code in _PATTERN_TYPES else PatternType.UNKNOWN


def operation_of(code: int) -> Operation:
    """The operation with this code; UNKNOWN for one of the future."""
    return Operation(code) if code in _OPERATIONS else Operation.UNKNOWN


def permission_of(code: int) -> Permission:
    """The permission with this code; UNKNOWN for one of the future."""
    return Permission(code) if code in _PERMISSIONS else Permission.UNKNOWN


_RESOURCE_TYPES = frozenset(map(int, ResourceType))
_PATTERN_TYPES = frozenset(map(int, PatternType))
_OPERATIONS = frozenset(map(int, Operation))
_PERMISSIONS = frozenset(map(int, Permission))
