"""Arguments of admin calls, checked before anything is sent.

Called by ``AsyncAdmin``. An argument of another form is a ``ClientError`` that names the form to use: without
the check it fails somewhere in a request, or a lone name is read as a list of its letters.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from types import UnionType
from typing import Any, TypeVar

from tidelog.client.errors import ClientError
from tidelog.ids import TopicPartition

Many = TypeVar("Many", bound=Collection[Any])
T = TypeVar("T")
EnumT = TypeVar("EnumT", bound=enum.Enum)


def listed(given: Many, kind: type | UnionType) -> Many:
    """``given``, if it is several of ``kind``; a lone str, which type checkers let pass, is letters."""
    if (
        isinstance(given, str | bytes)
        or not isinstance(given, Collection)
        or not all(isinstance(each, kind) for each in given)
    ):
        raise ClientError(f"expected a list of {_name(kind)}, even for one, got {given!r}")
    return given


def listed_or_none(given: Many | None, kind: type | UnionType) -> Many | None:
    """As ``listed``; None stays None."""
    return None if given is None else listed(given, kind)


def members(given: Collection[EnumT], kind: type[EnumT]) -> list[EnumT]:
    """Members of ``kind``, each given by itself or by its value."""
    found = []
    for each in listed(given, object):
        try:
            found.append(kind(each))
        except ValueError:
            known = ", ".join(str(member) for member in kind)
            raise ClientError(f"{each!r} is not a {kind.__name__}; those are {known}") from None
    return found


def one(call: str, argument: str, given: T, kind: type | UnionType) -> T:
    """``given``, if it is of ``kind``."""
    if not isinstance(given, kind):
        raise ClientError(f"{call}() takes {argument} as a {_name(kind)}, got {given!r}")
    return given


def mapping(call: str, given: Mapping[str, T], kind: type | UnionType, example: str) -> Mapping[str, T]:
    """``given``, if it maps names to values of ``kind``."""
    if isinstance(given, Mapping) and all(
        isinstance(name, str) and isinstance(value, kind) for name, value in given.items()
    ):
        return given
    raise ClientError(f"{call}() takes a mapping, as {example}, got {given!r}")


def partitions_of(call: str, given: object) -> list[TopicPartition]:
    """Partitions, each a ``TopicPartition`` or a pair; one alone counts as a list of one."""
    if isinstance(given, TopicPartition):
        return [given]
    if isinstance(given, Collection) and not isinstance(given, str | bytes):
        found = [_partition(each) for each in given]
        partitions = [each for each in found if each is not None]
        if len(partitions) == len(found):
            return partitions
    raise ClientError(f"{call}() takes a list of partitions, as [TopicPartition('orders', 0)], got {given!r}")


def partitions_or_none(call: str, given: object) -> list[TopicPartition] | None:
    """As ``partitions_of``; None stays None."""
    return None if given is None else partitions_of(call, given)


def by_partition(
    call: str, given: Mapping[TopicPartition, T], is_valid: Callable[[object], bool], example: str
) -> dict[TopicPartition, T]:
    """``given``, if it maps partitions (or pairs) to valid values."""
    if isinstance(given, Mapping) and all(map(is_valid, given.values())):
        found = {_partition(each): value for each, value in given.items()}
        partitions = {each: value for each, value in found.items() if each is not None}
        if len(partitions) == len(given):
            return partitions
    raise ClientError(f"{call} takes a mapping of partitions, as {example}, got {given!r}")


def is_number(given: object) -> bool:
    """Whether this is an offset or a time in milliseconds."""
    return isinstance(given, int) and not isinstance(given, bool)


def is_broker_list(given: object) -> bool:
    """Whether this is the ids of brokers, or None."""
    return given is None or (
        isinstance(given, Collection) and not isinstance(given, str | bytes) and all(map(is_number, given))
    )


def is_replica(given: object) -> bool:
    """Whether this is a replica: the id of a broker and a partition."""
    return (
        isinstance(given, tuple)
        and len(given) == 2
        and is_number(given[0])
        and isinstance(given[1], TopicPartition)
    )


def _partition(given: object) -> TopicPartition | None:
    match given:
        case (str() as topic, int() as partition) if partition >= 0:
            return TopicPartition(topic, partition)
    return None


def _name(kind: type | UnionType) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)
