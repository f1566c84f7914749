"""Who asks: the session, its token against forged requests, logging in and out; the clusters he sees."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tidelog.console.api.endpoint import Call, Nothing, changes, reads
from tidelog.console.auth.audit import LOGIN
from tidelog.console.auth.person import Account, Person
from tidelog.console.auth.sessions import Session
from tidelog.console.extension import installed_pages
from tidelog.console.refusal import Refusal
from tidelog.console.service import Console
from tidelog.console.settings import Role, Way
from tidelog.version import __version__


class ClusterName(msgspec.Struct, frozen=True):
    """A cluster that a person may see, and what he may do there."""

    name: str
    bootstrap: str
    colour: str
    role: str
    problem: str | None
    problem_since_ms: int | None


class AddedPage(msgspec.Struct, frozen=True):
    """A page of another package: its name in the address, its title, and its script."""

    name: str
    title: str
    script: str


class SessionState(msgspec.Struct, frozen=True):
    """What a page needs to know first."""

    user: str | None
    token: str
    login: bool
    """Whether people have to log in."""
    read_only: bool
    version: str
    clusters: list[ClusterName]
    passwords: bool
    """Whether SCRAM users of a cluster may log in."""
    provider: str | None
    """The name of the provider at which people may log in."""
    tokens: bool
    """Whether people make tokens for assistants here."""
    pages: list[AddedPage]
    """The pages that other packages add."""


class SessionChange(msgspec.Struct, frozen=True):
    """A new session, for the cookie; not part of the answer."""

    session: Session | None
    body: object


class LoginBegun(msgspec.Struct, frozen=True):
    """A login at the provider, for its cookie; not part of the answer."""

    login_id: str
    body: object


class Elsewhere(msgspec.Struct, frozen=True):
    """Where the browser goes next; null is nowhere."""

    url: str | None


class ProviderLogin(msgspec.Struct, forbid_unknown_fields=True):
    """The place of the page to come back to, as it is behind the ``#``."""

    place: str = ""


class Credentials(msgspec.Struct, forbid_unknown_fields=True):
    """A SCRAM user of the cluster; strangers send this, so it is short."""

    user: Annotated[str, msgspec.Meta(max_length=256)]
    password: Annotated[str, msgspec.Meta(max_length=1024)]


@reads("/session", "The session, its token for changes, and the clusters.", Nothing, Role.NONE)
async def session(call: Call, asked: Nothing) -> SessionState | SessionChange:
    """For whoever asks; a session begins where there is none."""
    if call.console.sessions.find(call.session.id) is not None:
        return _state(call, call.session)
    begun = call.console.sessions.begin(None)
    return SessionChange(begun, _state(call, begun))


@changes("POST", "/session", "Log in.", Credentials, action=LOGIN, role=Role.NONE)
async def log_in(call: Call, asked: Credentials) -> SessionChange:
    """Try the password at the cluster; a new session begins."""
    if call.console.login is None:
        raise Refusal(
            "password login is disabled: add a [login] section to the file in --config", 409, "NO_LOGIN"
        )
    call.details["user"] = asked.user[:200]
    await call.console.login.check(asked.user, asked.password)
    call.person = call.console.named(Account(asked.user, Way.SCRAM))
    begun = call.console.sessions.begin(call.person)
    call.console.sessions.end(call.session)
    return SessionChange(begun, _state(call, begun))


@changes(
    "POST",
    "/session/provider",
    "Start a login at the provider; the browser then opens the URL.",
    ProviderLogin,
    action="begin login",
    role=Role.NONE,
    is_noted=False,
)
async def begin_login(call: Call, asked: ProviderLogin) -> LoginBegun:
    """Only our own pages begin one; the provider sends the browser back to /login/oidc."""
    if call.console.oidc is None:
        raise Refusal(
            "no login provider is configured: add a [login.oidc] section to the file in --config",
            409,
            "NO_LOGIN",
        )
    begun = await call.console.oidc.begin(call.session.id, asked.place)
    return LoginBegun(begun.id, Elsewhere(begun.url))


@changes("DELETE", "/session", "Log out.", Nothing, action="logout", role=Role.NONE)
async def log_out(call: Call, asked: Nothing) -> SessionChange:
    """End the session; where the provider ends its own, too, the URL says where."""
    call.console.sessions.end(call.session)
    return SessionChange(None, Elsewhere(call.session.logout_url))


def _state(call: Call, session: Session) -> SessionState:
    console = call.console
    person = console.person(session)
    return SessionState(
        person.name if person else None,
        session.token,
        console.has_logins,
        console.settings.read_only,
        __version__,
        [] if person is None else cluster_names(console, person),
        console.login is not None,
        None if console.oidc is None else console.oidc.name,
        console.tokens is not None,
        [] if person is None else _added_pages(),
    )


def _added_pages() -> list[AddedPage]:
    return [
        AddedPage(name, page.title, f"/pages/{name}/{page.script.name}")
        for name, page in installed_pages().items()
        if page.script is not None
    ]


def cluster_names(console: Console, person: Person) -> list[ClusterName]:
    """The clusters that somebody may see."""
    return [
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
    ]


ENDPOINTS = (session, log_in, begin_login, log_out)
