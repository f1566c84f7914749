from __future__ import annotations

import pytest

from tidelog.security.principal import ANONYMOUS, Principal, parse_principal


@pytest.mark.parametrize(
    ("text", "principal"),
    [
        ("User:alice", Principal("alice")),
        ("User:CN=a,OU=b:c", Principal("CN=a,OU=b:c")),
        ("Group:ops", Principal("ops", "Group")),
        ("User:*", Principal("*")),
    ],
)
def test_a_principal_is_read_and_written_the_same(text: str, principal: Principal) -> None:
    assert parse_principal(text) == principal
    assert str(principal) == text


@pytest.mark.parametrize("text", ["alice", ":alice", "User:", "", ":"])
def test_what_is_no_principal_is_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(ValueError, match="User:alice"):
        parse_principal(text)


def test_nobody_is_the_user_anonymous() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
