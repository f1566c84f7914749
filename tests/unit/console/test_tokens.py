"""Personal tokens: kept as hashes, over restarts, until they end or are revoked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.console.auth import tokens as tokens_module
from tidelog.console.auth.tokens import Tokens
from tidelog.console.refusal import Refusal
from tidelog.console.settings import Way
from tidelog.errors import ConfigError

DAY_MS = 24 * 3600 * 1000


def make(tokens: Tokens, user: str = "alice", way: Way = Way.OIDC, days: float = 7.0) -> str:
    return tokens.make(user, way, frozenset({"staff"}), "label", days, read_only=True)[0]


def test_a_token_is_known_after_a_restart_and_its_secret_is_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    text = make(Tokens(file, 30.0, lambda: 0))
    again = Tokens(file, 30.0, lambda: 0)
    found = again.find(text)
    assert found is not None
    assert (found.user, found.way, found.groups, found.read_only) == ("alice", Way.OIDC, ("staff",), True)
    assert text.split("_", 2)[2] not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["tokens.json"]


def test_what_is_nearly_a_token_is_nobodys(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json", 30.0, lambda: 0)
    text, kept = tokens.make("alice", Way.SCRAM, frozenset(), "label", 7.0, read_only=False)
    prefix = "_".join(text.split("_", 2)[:2])
    for wrong in ("", "tlc_", "tlc__", prefix, f"{prefix}_", f"{prefix}_x", text[:-1], f"{text}x", kept.hash):
        assert tokens.find(wrong) is None, wrong
    assert tokens.find(f"tlc_{kept.id}_{kept.hash}") is None


def test_a_token_ends(tmp_path: Path) -> None:
    now_ms = 0
    tokens = Tokens(tmp_path / "tokens.json", 30.0, lambda: now_ms)
    text = make(tokens, days=1.0)
    now_ms = DAY_MS - 1
    assert tokens.find(text) is not None
    now_ms = DAY_MS
    assert tokens.find(text) is None
    assert tokens.all() == []


def test_a_revoked_token_stays_so(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    tokens = Tokens(file, 30.0, lambda: 0)
    kept, gone = make(tokens), make(tokens)
    found = tokens.find(gone)
    assert found is not None
    tokens.revoke(found.id)
    for each in (tokens, Tokens(file, 30.0, lambda: 0)):
        assert each.find(gone) is None
        assert each.find(kept) is not None
    with pytest.raises(Refusal, match=r"token '.*' does not exist"):
        tokens.get(found.id)


def test_people_of_one_name_have_their_own_and_only_so_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens_module, "_EACH", 2)
    now_ms = 0
    tokens = Tokens(tmp_path / "tokens.json", 30.0, lambda: now_ms)
    make(tokens)
    make(tokens)
    with pytest.raises(Refusal, match="revoke one"):
        make(tokens)
    make(tokens, way=Way.SCRAM)
    assert len(tokens.of("alice", Way.SCRAM)) == 1
    now_ms = 8 * DAY_MS
    make(tokens)  # those that have ended do not count


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    for content in (b"{", b'{"tokens": [{"id": "\xff"}]}', b'{"tokens": ' + b"[" * 100_000):
        file.write_bytes(content)
        with pytest.raises(ConfigError, match=r"cannot read the tokens in .*tokens\.json"):
            Tokens(file, 30.0, lambda: 0)


def test_a_token_that_cannot_be_kept_is_not_given(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    tokens = Tokens(directory / "tokens.json", 30.0, lambda: 0)
    directory.rmdir()
    with pytest.raises(Refusal, match="cannot write the tokens: no such file"):
        make(tokens)
    assert tokens.all() == []
