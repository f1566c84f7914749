"""Access rules as Kafka keeps them in ZooKeeper: a node for each pattern, and notices of changes.

/kafka-acl/<Type>/<name>                        rules of a literal pattern, ``*`` among the names
/kafka-acl-extended/prefixed/<Type>/<name>      rules of a prefix
/kafka-acl-changes/acl_changes_N                ``TOPIC:orders``: a literal pattern's rules have changed
/kafka-acl-extended-changes/acl_changes_N       the same of a prefix, as JSON

Names of resources stand in paths as they are, so that one with a slash cannot be kept. Bytes are those that
Kafka writes; ``acl_store`` is the only user.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from tidelog.errors import StorageError
from tidelog.metadata.znodes.znodes import decode_json
from tidelog.security.acls.model import (
    STORED_RESOURCE_TYPES,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

_RULES: Final = {
    PatternType.LITERAL: "/kafka-acl",
    PatternType.PREFIXED: "/kafka-acl-extended/prefixed",
}
NOTICES: Final = {
    PatternType.LITERAL: "/kafka-acl-changes",
    PatternType.PREFIXED: "/kafka-acl-extended-changes",
}
_NOTICE_NAME: Final = "acl_changes_"

_TYPES = {each.label.lower(): each for each in STORED_RESOURCE_TYPES}
_OPERATIONS = {each.label.lower(): each for each in Operation if each > Operation.ANY}
_PERMISSIONS = {each.label.lower(): each for each in (Permission.ALLOW, Permission.DENY)}


# In the order in which Kafka writes them, which is that of a Java hash map.
class _Entry(msgspec.Struct, rename="camel"):
    principal: str
    permission_type: str
    host: str
    operation: str


class _Entries(msgspec.Struct):
    acls: list[_Entry]
    version: int


class _Notice(msgspec.Struct, rename="camel"):
    version: int
    resource_type: str
    name: str
    pattern_type: str


T = TypeVar("T")
_encode = msgspec.json.encode


def parents() -> Iterable[str]:
    """What has to be there before the first rule."""
    for pattern_type in _RULES:
        for kind in STORED_RESOURCE_TYPES:
            yield type_path(kind, pattern_type)
        yield NOTICES[pattern_type]


def type_path(kind: ResourceType, pattern_type: PatternType) -> str:
    """The parent of all patterns of one kind."""
    return f"{_RULES[pattern_type]}/{kind.label}"


def rules_path(pattern: ResourcePattern) -> str:
    """Where a pattern's rules are."""
    return f"{type_path(pattern.type, pattern.pattern_type)}/{pattern.name}"


def cannot_be_kept(name: str) -> bool:
    """Whether a resource's name makes no name of a node."""
    return "/" in name or "\0" in name or name in (".", "..")


def encode_rules(entries: Iterable[AclEntry]) -> bytes:
    """A pattern's rules."""
    acls = [
        _Entry(each.principal, each.permission.label, each.host, each.operation.label) for each in entries
    ]
    return _encode(_Entries(acls, 1))


def decode_rules(path: str, raw: bytes) -> tuple[AclEntry, ...]:
    """The inverse; an empty node has no rules. Raises :class:`StorageError` that names the node."""
    if not raw:
        return ()
    return tuple(
        AclEntry(
            each.principal,
            each.host,
            _known(_OPERATIONS, each.operation, path),
            _known(_PERMISSIONS, each.permission_type, path),
        )
        for each in decode_json(_Entries, path, raw).acls
    )


def notice_prefix(pattern: ResourcePattern) -> str:
    """The path of a notice, without its number."""
    return f"{NOTICES[pattern.pattern_type]}/{_NOTICE_NAME}"


def encode_notice(pattern: ResourcePattern) -> bytes:
    """That a pattern's rules have changed."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.type.name}:{pattern.name}".encode()
    return _encode(_Notice(1, pattern.type.name, pattern.name, pattern.pattern_type.name))


def decode_notice(path: str, raw: bytes) -> ResourcePattern:
    """Whose rules have changed."""
    if path.startswith(NOTICES[PatternType.LITERAL] + "/"):
        kind, colon, name = raw.decode(errors="replace").partition(":")
        if not colon:
            raise StorageError(f"metadata node {path} holds {raw!r}, which names no resource")
        return ResourcePattern(_type_of(kind, path), name)
    notice = decode_json(_Notice, path, raw)
    return ResourcePattern(_type_of(notice.resource_type, path), notice.name, PatternType.PREFIXED)


def _type_of(text: str, path: str) -> ResourceType:
    # TRANSACTIONAL_ID in notices of today, TransactionalId in those of Kafka 1.
    return _known(_TYPES, text.replace("_", ""), path)


def _known(table: dict[str, T], text: str, path: str) -> T:
    found = table.get(text.lower())
    if found is None:
        raise StorageError(f"metadata node {path} holds {text!r}, which Tidelog does not know")
    return found
