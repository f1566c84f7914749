"""Sessions, hosts, and patience with those who try passwords."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.console.people import sessions as sessions_module
from tidelog.console.people.login import ScramLogin
from tidelog.console.people.person import everybody
from tidelog.console.people.sessions import Sessions
from tidelog.console.refusal import Refusal
from tidelog.console.settings import ClusterSettings, Listen, Role
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


def test_who_fails_has_to_wait_longer_each_time() -> None:
    now_s = 0.0
    login = ScramLogin(
        ClusterSettings("c", {"bootstrap.servers": "127.0.0.1:1"}), "SCRAM-SHA-512", lambda: now_s
    )
    for _ in range(5):
        login._note_failure("alice")
    with pytest.raises(Refusal, match="try again in 4 s") as refused:
        asyncio.run(login.check("alice", "x"))
    assert refused.value.status == 429
    login._require_patience("bob")
    now_s = 5.0
    login._require_patience("alice")
