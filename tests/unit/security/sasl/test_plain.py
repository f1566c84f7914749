from __future__ import annotations

import pytest

from tidelog.security.principal import Principal
from tidelog.security.sasl.mechanism import Refused
from tidelog.security.sasl.plain import PlainMechanism, plain_users

MECHANISM = PlainMechanism({"alice": "secret", "ünal": "pässword"})


def test_users_are_the_options_with_their_prefix() -> None:
    assert plain_users({"username": "a", "password": "b", "user_alice": "c", "user_": "d"}) == {"alice": "c"}


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (b"\0alice\0secret", "alice"),
        (b"alice\0alice\0secret", "alice"),
        ("\0ünal\0pässword".encode(), "ünal"),
    ],
)
def test_who_knows_his_password_is_let_in(message: bytes, name: str) -> None:
    answer, proven, _ = MECHANISM.begin().step(message)
    assert answer == b""
    assert proven is not None
    assert proven.principal == Principal(name)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0",
        b"\0alice\0",
        b"\0\0secret",
        b"\0alice\0Secret",
        b"\0alice\0secret2",
        b"\0bob\0secret",
        b"bob\0alice\0secret",
        b"\0alice\0secret\0",
        b"alice\0secret",
        b"\0alice\0\xff",
        b"\0alice\0" + b"x" * 500_000,
    ],
)
def test_everybody_else_is_refused_without_showing_what_he_sent(message: bytes) -> None:
    with pytest.raises(Refused) as refused:
        MECHANISM.begin().step(message)
    assert "secret" not in str(refused.value)
    assert "alice" not in str(refused.value)


def test_the_refusal_does_not_tell_a_wrong_name_from_a_wrong_password() -> None:
    texts = set()
    for message in (b"\0alice\0wrong", b"\0nobody\0wrong"):
        with pytest.raises(Refused) as refused:
            MECHANISM.begin().step(message)
        texts.add(str(refused.value))
    assert len(texts) == 1
