"""Sessions of browsers: an unguessable name in a cookie, a token against forged requests, an end.

A session is known by the cookie alone; its ``token`` has to come back in a header with every change
(``X-Console-Token``), which pages of other sites can neither read nor send. Sessions are kept in memory: who
restarts the console logs everybody out. There are only so many; the one that was used least lately goes, of
those in which nobody has logged in first, so that strangers cannot end the sessions of others.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from tidelog.console.auth.person import Person

COOKIE = "tidelog-console"
"""Begins the cookie's name; the port ends it, for browsers tell hosts apart but not their ports."""
TOKEN_HEADER = "x-console-token"
_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class Session:
    """One browser; ``person`` is None until somebody has logged in."""

    id: str
    token: str
    person: Person | None
    ends_at_s: float
    logout_url: str | None = None
    """Where the provider at which he has logged in ends its own session."""


class Sessions:
    """All of them; ``now_s`` is a monotonic clock."""

    def __init__(self, lifetime_s: float, now_s: Callable[[], float]) -> None:
        self._lifetime_s = lifetime_s
        self._now_s = now_s
        self._by_id: OrderedDict[str, Session] = OrderedDict()

    def find(self, session_id: str | None) -> Session | None:
        """The session of a cookie, if it has not ended."""
        session = self._by_id.get(session_id or "")
        if session is None:
            return None
        if session.ends_at_s <= self._now_s():
            del self._by_id[session.id]
            return None
        self._by_id.move_to_end(session.id)
        return session

    def anonymous_session(self, person: Person | None = None, logout_url: str | None = None) -> Session:
        """A session for one request, of somebody who shows no cookie; it is not kept."""
        ends_at_s = self._now_s() + self._lifetime_s
        return Session(secrets.token_urlsafe(32), secrets.token_urlsafe(32), person, ends_at_s, logout_url)

    def begin(self, person: Person | None, logout_url: str | None = None) -> Session:
        """A new session; whoever logs in gets one, so that nobody knows its name beforehand."""
        session = self.anonymous_session(person, logout_url)
        self._by_id[session.id] = session
        if len(self._by_id) > _LIMIT:
            self._drop_one(session)
        return session

    def _drop_one(self, kept: Session) -> None:
        strangers = (each for each in self._by_id.values() if each.person is None and each is not kept)
        self.end(next(strangers, next(iter(self._by_id.values()))))

    def end(self, session: Session) -> None:
        """Log out."""
        self.end_by_id(session.id)

    def end_by_id(self, session_id: str) -> None:
        """End a session that may be over already."""
        self._by_id.pop(session_id, None)
