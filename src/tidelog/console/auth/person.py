"""Who somebody is and what he may do, by cluster and by topic. Pure.

Without logins everybody is the same person, with the role that the console gives to all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from tidelog.console.refusal import forbidden
from tidelog.console.settings import Grant, Role, Way


@dataclass(frozen=True, slots=True)
class Account:
    """Whom somebody has proven to be: a name, by a way of logging in, with groups where that has some."""

    user: str
    way: Way = Way.SCRAM
    groups: frozenset[str] = field(default=frozenset(), compare=False)
    """A token has those of when it was made: the person is the same."""


@dataclass(frozen=True, slots=True)
class Person:
    """A user with his grants; ``most`` bounds them, for a console that is read-only."""

    name: str
    grants: tuple[Grant, ...]
    most: Role = Role.ADMIN
    account: Account | None = None
    """None where nobody logs in."""

    def role(self, cluster: str, topic: str | None = None) -> Role:
        """What he may do on a topic, or on the cluster itself."""
        return min(self.granted(cluster, topic), self.most)

    def granted(self, cluster: str, topic: str | None = None) -> Role:
        """His role by his grants; to see a cluster, a right on any of its topics is enough."""
        found = Role.NONE
        for grant in self.grants:
            if not matches(cluster, grant.clusters):
                continue
            if topic is not None:
                if matches(topic, grant.topics):
                    found = max(found, grant.role)
            elif grant.covers_all_topics:
                found = max(found, grant.role)
            else:
                found = max(found, Role.VIEWER)
        return found

    def may_see(self, cluster: str, topic: str) -> bool:
        """Whether a topic is shown to him."""
        return self.role(cluster, topic) >= Role.VIEWER

    def sees_all_topics(self, cluster: str) -> bool:
        """Whether he may see what concerns the whole cluster."""
        return any(
            each.covers_all_topics and each.role >= Role.VIEWER and matches(cluster, each.clusters)
            for each in self.grants
        )

    def is_admin_of(self, clusters: Iterable[str]) -> bool:
        """Whether he is the admin of all of them, and so of the console itself."""
        return all(self.sees_all_topics(each) and self.granted(each) >= Role.ADMIN for each in clusters)

    def require(self, needed: Role, cluster: str, topic: str | None = None) -> None:
        """Raise a refusal that says what is missing."""
        if self.role(cluster, topic) >= needed:
            return
        where = f"topic {topic} of cluster {cluster}" if topic is not None else f"cluster {cluster}"
        if self.most < needed:
            raise forbidden(
                "this console is read-only: start it with --allow-changes or on a loopback address"
            )
        raise forbidden(f"{self.name} needs the role {needed.name.lower()} on {where}")


ANONYMOUS_PERSON = Person("", ())
"""Whoever has not logged in."""


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether one of the patterns, with ``*`` and ``?``, is about ``name``."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def everybody(role: Role) -> Person:
    """The one person of a console without logins."""
    return Person("anonymous", (Grant("*", role),), role)


def person_of(account: Account | str, grants: tuple[Grant, ...], most: Role, *, shown: str = "") -> Person:
    """A user with the grants that name him, his groups or everybody; without any he may see nothing.

    ``shown`` is what he is called where two ways of logging in may know the same name.
    """
    if isinstance(account, str):
        account = Account(account)
    granted = tuple(each for each in grants if _is_for(each, account))
    return Person(shown or account.user, granted, most, account)


def _is_for(grant: Grant, account: Account) -> bool:
    if grant.way not in (None, account.way):
        return False
    return grant.group in account.groups if grant.group else grant.user in (account.user, "*")
