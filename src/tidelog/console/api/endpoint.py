"""How an endpoint is declared: its method and path, what it is asked, the role that it needs, its handler.

What is asked is a ``msgspec.Struct``: of the query for GET, of the JSON body for the rest. Routes, checks and
the OpenAPI document are made of the declaration; a handler gets a :class:`Call` and the struct, and
returns something that msgspec encodes, or a response of its own. Whatever changes something names an
``action``, and is noted in the audit log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import msgspec

from tidelog.console.auth.person import Person
from tidelog.console.auth.sessions import Session
from tidelog.console.refusal import Refusal, forbidden
from tidelog.console.service import Console
from tidelog.console.settings import Role
from tidelog.console.watching.snapshot import Snapshot
from tidelog.console.watching.watched_cluster import WatchedCluster

Method = Literal["GET", "POST", "PUT", "DELETE"]
T = TypeVar("T", bound=msgspec.Struct)
_DIGITS = 19
"""Numbers of so many digits are more than Kafka's 64 bits."""


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """An endpoint that is asked nothing."""


@dataclass(slots=True)
class Call:
    """One request: who asks, about which cluster, and what the audit log shall say of it."""

    console: Console
    session: Session
    person: Person
    address: str
    path: dict[str, str]
    watched: WatchedCluster | None = None
    details: dict[str, object] = field(default_factory=dict)
    """For the audit log; never values of records or passwords."""

    @property
    def cluster(self) -> WatchedCluster:
        """The cluster that the path names."""
        assert self.watched is not None
        return self.watched

    @property
    def topic(self) -> str:
        """The topic that the path names; whether the person may see it was checked."""
        return self.path["topic"]

    def sees(self, topic: str) -> bool:
        """Whether the person may see a topic of the cluster."""
        return self.person.may_see(self.cluster.name, topic)

    def require(self, role: Role, topic: str | None = None) -> None:
        """Raise a refusal unless the person has a role on a topic, or on the cluster."""
        self.person.require(role, self.cluster.name, topic)


def require_whole_cluster(call: Call) -> None:
    """Raise a refusal for those who may see some topics only."""
    name = call.cluster.name
    if not call.person.sees_all_topics(name):
        raise forbidden(
            f"{call.person.name} has access to only some topics of cluster {name}; this operation "
            "requires access to all topics"
        )


def sees_group(call: Call, seen: Snapshot | None, group: str) -> bool:
    """Whether a group reads something that the person may see, or he may see all."""
    if call.person.sees_all_topics(call.cluster.name):
        return True
    committed = {} if seen is None else seen.committed.get(group, {})
    return any(call.sees(each.topic) for each in committed)


def numbers_of(texts: Iterable[str], otherwise: str) -> list[int]:
    """Numbers from 0 on; raises a refusal with the text ``otherwise`` where one is none that Kafka knows."""
    given = list(texts)
    if not all(each.isascii() and each.isdecimal() and len(each) < _DIGITS for each in given):
        raise Refusal(otherwise)
    return [int(each) for each in given]


Handler = Callable[[Call, Any], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One operation of the API."""

    method: Method
    path: str
    summary: str
    asked: type[msgspec.Struct]
    role: Role
    handle: Handler
    action: str = ""
    """The name of the change in the audit log; empty for what only reads."""
    is_noted: bool = True
    """Whether the audit log has it; not what strangers may do as often as they like."""

    @property
    def name(self) -> str:
        """The operation's id."""
        return self.handle.__name__


def reads(
    path: str, summary: str, asked: type[T], role: Role = Role.VIEWER
) -> Callable[[Callable[[Call, T], Awaitable[object]]], Endpoint]:
    """Declare a GET."""
    return lambda handle: Endpoint("GET", path, summary, asked, role, handle)


def changes(
    method: Literal["POST", "PUT", "DELETE"],
    path: str,
    summary: str,
    asked: type[T],
    *,
    action: str,
    role: Role = Role.OPERATOR,
    is_noted: bool = True,
) -> Callable[[Callable[[Call, T], Awaitable[object]]], Endpoint]:
    """Declare an operation that changes something."""
    return lambda handle: Endpoint(method, path, summary, asked, role, handle, action, is_noted)
