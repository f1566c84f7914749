"""Sessions, hosts, and patience with those who try passwords."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from unittest import mock

import pytest

from tidelog.client.errors import AuthenticationError
from tidelog.console.auth import login as login_module
from tidelog.console.auth import oidc
from tidelog.console.auth import sessions as sessions_module
from tidelog.console.auth.login import ScramLogin
from tidelog.console.auth.oidc import Answer, OidcLogin
from tidelog.console.auth.oidc_provider import Offer
from tidelog.console.auth.person import ANONYMOUS_PERSON, Account, everybody, person_of
from tidelog.console.auth.sessions import Sessions
from tidelog.console.refusal import Refusal
from tidelog.console.settings import ClusterSettings, Grant, Listen, OidcSettings, Role, Way
from tidelog.console.web import is_known_host


def test_sessions_end_and_cannot_be_guessed_from_each_other() -> None:
    now_s = 0.0
    sessions = Sessions(60.0, lambda: now_s)
    one, other = sessions.begin(None), sessions.begin(None)
    assert len({one.id, one.token, other.id, other.token}) == 4
    assert sessions.find(one.id) is one
    assert sessions.find(None) is None
    sessions.end(other)
    assert sessions.find(other.id) is None
    now_s = 61.0
    assert sessions.find(one.id) is None


def test_grants_are_for_users_of_a_way_for_groups_or_for_everybody() -> None:
    grants = (
        Grant("alice", Role.ADMIN, clusters=("a",), way=Way.SCRAM),
        Grant("alice", Role.VIEWER, clusters=("a",), way=Way.OIDC),
        Grant("", Role.OPERATOR, clusters=("b",), group="staff", way=Way.OIDC),
        Grant("*", Role.VIEWER, clusters=("c",)),
    )

    def roles(account: Account) -> list[Role]:
        person = person_of(account, grants, Role.ADMIN)
        return [person.role(each) for each in "abc"]

    none, viewer, operator, admin = Role
    assert roles(Account("alice", Way.SCRAM)) == [admin, none, viewer]
    assert roles(Account("alice", Way.OIDC)) == [viewer, none, viewer]
    assert roles(Account("bob", Way.OIDC, frozenset({"staff"}))) == [none, operator, viewer]
    # Neither a user without a name nor one with a group's is in the group.
    assert roles(Account("", Way.OIDC)) == roles(Account("staff", Way.OIDC)) == [none, none, viewer]
    assert roles(Account("bob", Way.SCRAM, frozenset({"staff"}))) == [none, none, viewer]
    assert ANONYMOUS_PERSON.role("c") is none


def test_an_admin_of_the_console_is_one_of_all_clusters_and_topics() -> None:
    everywhere = person_of("root", (Grant("root", Role.ADMIN),), Role.VIEWER)
    assert everywhere.is_admin_of(["a", "b"])  # also where the console is read-only
    for grant in (Grant("root", Role.ADMIN, clusters=("a",)), Grant("root", Role.ADMIN, topics=("x-*",))):
        assert not person_of("root", (grant,), Role.ADMIN).is_admin_of(["a", "b"])


def test_logins_that_were_begun_are_forgotten_when_they_are_over_or_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(oidc, "_REMEMBERED", 3)
    now_s = 0.0
    login = OidcLogin(OidcSettings("https://login.example", "c"), "https://c/login/oidc", lambda: now_s)
    offer = Offer("https://login.example/a", "https://login.example/t", "https://k", None, False, True)
    monkeypatch.setattr(login.provider, "offer", lambda: offer)

    async def run() -> None:
        nonlocal now_s
        begun = [await login.begin("session", "") for _ in range(4)]
        assert list(login._pending) == [each.id for each in begun[1:]]
        now_s = oidc.PATIENCE_S
        last = await login.begin("session", "")
        assert list(login._pending) == [last.id]
        with pytest.raises(Refusal, match="took longer than ten minutes"):
            await login.finish(begun[3].id, Answer("state", "code"))

    asyncio.run(run())
    login.close()


def test_whoever_passes_by_without_a_cookie_ends_nobodys_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "_LIMIT", 3)
    sessions = Sessions(60.0, lambda: 0.0)
    kept = [sessions.begin(None) for _ in range(3)]
    passed = [sessions.anonymous_session() for _ in range(10)]
    assert all(sessions.find(each.id) is each for each in kept)
    assert not any(sessions.find(each.id) for each in passed)


def test_strangers_cannot_end_the_sessions_of_those_who_have_logged_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions_module, "_LIMIT", 3)
    sessions = Sessions(60.0, lambda: 0.0)
    alice = sessions.begin(everybody(Role.ADMIN))
    strangers = [sessions.begin(None) for _ in range(10)]
    assert sessions.find(alice.id) is alice
    assert [sessions.find(each.id) is not None for each in strangers] == [False] * 8 + [True] * 2


@pytest.mark.parametrize(
    ("header", "is_known"),
    [
        ("127.0.0.1:8080", True),
        ("localhost:8080", True),
        ("LOCALHOST.", True),
        ("[::1]:8080", True),
        ("10.1.2.3", True),
        ("console.example:8080", True),
        ("evil.example:8080", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_only_addresses_and_names_of_our_own_are_answered(header: str, is_known: bool) -> None:
    listen = Listen("0.0.0.0", 8080, allowed_hosts=("console.example",))
    assert is_known_host(header, listen) is is_known


class Brokers:
    """Stand in for the cluster: they count who connects, and know one password."""

    def __init__(self) -> None:
        self.asked = 0
        self.problem: Exception | None = None

    @contextlib.asynccontextmanager
    async def admin(self, options: dict[str, object]) -> AsyncIterator[object]:
        self.asked += 1
        await asyncio.sleep(0)  # others come before the answer
        if self.problem is not None:
            raise self.problem
        if options["sasl.password"] != "right":
            raise AuthenticationError("no such user")
        yield mock.AsyncMock()


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    brokers = Brokers()
    monkeypatch.setattr(login_module, "AsyncAdmin", brokers.admin)
    return brokers


def scram_login(now_s: Callable[[], float]) -> ScramLogin:
    return ScramLogin(ClusterSettings("c", {"bootstrap.servers": "127.0.0.1:1"}), "SCRAM-SHA-512", now_s)


def test_tries_at_once_are_as_few_as_tries_one_after_another(brokers: Brokers) -> None:
    login = scram_login(lambda: 0.0)

    async def run() -> Counter[int]:
        tries = (login.check("alice", f"guess {number}") for number in range(400))
        found = await asyncio.gather(*tries, return_exceptions=True)
        return Counter(each.status for each in found if isinstance(each, Refusal))

    assert (asyncio.run(run()), brokers.asked) == ({401: 3, 429: 397}, 3)


def test_many_logins_with_the_right_password_at_once_are_taken(brokers: Brokers) -> None:
    login = scram_login(lambda: 0.0)

    async def run() -> list[None]:
        return await asyncio.gather(*(login.check("alice", "right") for _ in range(20)))

    assert asyncio.run(run()) == [None] * 20
    assert login._turns == {}


def test_a_password_is_taken_after_any_number_of_failures(brokers: Brokers) -> None:
    now_s = 0.0
    login = scram_login(lambda: now_s)

    async def fail(says: str, password: str = "wrong") -> None:
        with pytest.raises(Refusal, match=says):
            await login.check("alice", password)

    async def run() -> None:
        nonlocal now_s
        for _ in range(1100):
            now_s += 61.0
            await fail("wrong user name or password")
        await fail("try again in 60 s", "right")
        now_s += 61.0
        await login.check("alice", "right")
        for _ in range(3):  # and all is forgotten
            await fail("wrong user name or password")

    asyncio.run(run())


def test_a_cluster_that_is_away_counts_against_nobody(brokers: Brokers) -> None:
    login = scram_login(lambda: 0.0)
    brokers.problem = OSError("no route")
    for _ in range(10):
        with pytest.raises(OSError, match="no route"):
            asyncio.run(login.check("alice", "right"))
    brokers.problem = None
    asyncio.run(login.check("alice", "right"))


def test_who_fails_has_to_wait_longer_each_time() -> None:
    now_s = 0.0
    login = scram_login(lambda: now_s)
    for _ in range(5):
        login._note_failure("alice")
    with pytest.raises(Refusal, match="try again in 4 s") as refused:
        asyncio.run(login.check("alice", "x"))
    assert refused.value.status == 429
    login._require_patience("bob")
    now_s = 5.0
    login._require_patience("alice")
