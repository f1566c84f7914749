"""Who asks: the session, its token against forged requests, logging in and out; the clusters he sees."""

from __future__ import annotations

import msgspec

from tidelog.console.api.endpoint import Call, Nothing, changes, reads
from tidelog.console.people.sessions import Session
from tidelog.console.refusal import Refusal
from tidelog.console.settings import Role
from tidelog.version import __version__


class ClusterName(msgspec.Struct, frozen=True):
    """A cluster that a person may see, and what he may do there."""

    name: str
    bootstrap: str
    colour: str
    role: str
    problem: str | None
    problem_since_ms: int | None


class SessionState(msgspec.Struct, frozen=True):
    """What a page needs to know first."""

    user: str | None
    token: str
    login: bool
    """Whether people have to log in."""
    read_only: bool
    version: str
    clusters: list[ClusterName]


class SessionChange(msgspec.Struct, frozen=True):
    """A new session, for the cookie; not part of the answer."""

    session: Session | None
    body: object


class Credentials(msgspec.Struct, forbid_unknown_fields=True):
    """A SCRAM user of the cluster."""

    user: str
    password: str


@reads("/session", "The session, its token for changes, and the clusters.", Nothing, Role.NONE)
async def session(call: Call, asked: Nothing) -> SessionState:
    """For whoever asks."""
    return _state(call, call.session)


@changes("POST", "/session", "Log in.", Credentials, action="login", role=Role.NONE)
async def log_in(call: Call, asked: Credentials) -> SessionChange:
    """Try the password at the cluster; a new session begins."""
    if call.console.login is None:
        raise Refusal("this console has no logins: name [login] in its --config", 409, "NO_LOGIN")
    call.details["user"] = asked.user[:200]
    await call.console.login.check(asked.user, asked.password)
    call.person = call.console.named(asked.user)
    begun = call.console.sessions.begin(call.person)
    call.console.sessions.end(call.session)
    return SessionChange(begun, _state(call, begun))


@changes("DELETE", "/session", "Log out.", Nothing, action="logout", role=Role.NONE)
async def log_out(call: Call, asked: Nothing) -> SessionChange:
    """End the session."""
    call.console.sessions.end(call.session)
    return SessionChange(None, {})


def _state(call: Call, session: Session) -> SessionState:
    console = call.console
    person = console.person(session)
    return SessionState(
        person.name if person else None,
        session.token,
        console.login is not None,
        console.settings.read_only,
        __version__,
        []
        if person is None
        else [
            ClusterName(
                each.name,
                each.settings.bootstrap,
                each.settings.colour,
                role.name.lower(),
                each.problem,
                each.problem_since_ms,
            )
            for each in console.clusters.values()
            if (role := person.role(each.name)) >= Role.VIEWER
        ],
    )


ENDPOINTS = (session, log_in, log_out)
