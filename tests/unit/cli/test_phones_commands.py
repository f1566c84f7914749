"""`tidelog phones`: tokens of numbers, keys without their secrets, rotation."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tidelog_rewards.phones.phone_keys import ensure_keys, read_keys

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.toml"
    ensure_keys(path)
    return path


def test_a_number_is_found_under_every_key(tidelog: Command, keys: Path) -> None:
    code, _, told = tidelog("phones", "rotate", "--keys", keys, "--from", "2999-01-01T00:00:00Z")
    assert (code, "key k2" in told) == (0, True)
    code, out, _ = tidelog("phones", "token", "138 1234 5678", "+8613812345678", "--keys", keys, "--json")
    found = json.loads(out)
    assert [(row["number"], row["key"]) for row in found] == [
        ("138 1234 5678", "k1"),
        ("138 1234 5678", "k2"),
        ("+8613812345678", "k1"),
        ("+8613812345678", "k2"),
    ]
    assert found[0]["token"] == found[2]["token"] != found[1]["token"]
    code, out, _ = tidelog("phones", "keys", "--keys", keys)
    assert out.splitlines() == ["k1\t1970-01-01T00:00:00Z", "k2\t2999-01-01T00:00:00Z"]


def test_keys_are_those_of_the_pipelines_of_the_environment(
    tidelog: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_PIPELINES", str(tmp_path))
    code, _, told = tidelog("phones", "keys")
    assert (code, "the first `tidelog pipeline run` makes them" in told) == (1, True)
    ensure_keys(tmp_path / "phone-keys.toml")
    assert tidelog("phones", "keys")[0] == 0


def test_a_key_is_for_the_day_after_tomorrow_unless_told_otherwise(tidelog: Command, keys: Path) -> None:
    before = datetime.now(UTC)
    assert tidelog("phones", "rotate", "--keys", keys)[0] == 0
    since = read_keys(keys).newest.since
    assert before + timedelta(days=1) < since <= datetime.now(UTC) + timedelta(days=2)
    assert (since.hour, since.minute, since.second) == (0, 0, 0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("rotate", "--from", "2020-01-01"), "must begin more than a day from now"),
        (("rotate", "--from", "soon"), "invalid --from 'soon'"),
        (("token", "138", "--country", "XX"), "'XX' is no country"),
    ],
)
def test_what_cannot_be_done_is_said(
    tidelog: Command, keys: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    code, out, told = tidelog("phones", *arguments, "--keys", keys)
    assert code != 0
    assert out == ""
    assert sentence in told


def test_no_secret_is_shown(tidelog: Command, keys: Path) -> None:
    secret = keys.read_text().split('secret = "')[1].split('"')[0]
    for arguments in (("keys",), ("keys", "--json"), ("token", "138"), ("rotate",)):
        _, out, told = tidelog("phones", *arguments, "--keys", keys)
        assert secret not in out + told
