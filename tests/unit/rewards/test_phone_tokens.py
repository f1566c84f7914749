"""Keys in a file, rotation, tokens, and what is done with values that nobody could read."""

from __future__ import annotations

import base64
import hmac
import json
import os
import pickle
import re
import stat
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from phonenumbers.geodata.locale import LOCALE_DATA

from tidelog.spark.settings import PipelineSettings
from tidelog_rewards.phones.phone_keys import (
    PhoneKey,
    PhoneKeys,
    PhoneKeysError,
    add_key,
    ensure_keys,
    read_keys,
)
from tidelog_rewards.phones.phone_tokens import CLEAR, PhonesOfSettings, PhoneTokens, _cached_token
from tidelog_rewards.settings import LANGUAGES, PhoneSettings, RewardsSettings

START = datetime(1970, 1, 1, tzinfo=UTC)
NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC)
NEW_YEAR_US = round(NEW_YEAR.timestamp() * 1_000_000)
TWO_KEYS = PhoneKeys([PhoneKey("k2", NEW_YEAR, b"2" * 32), PhoneKey("k1", START, b"1" * 32)])
PLACE = b"ml_user_login_log/0/3"
TOKEN = re.compile("tel_k[0-9]+_[a-z2-7]{26}")


@pytest.mark.parametrize(
    "written",
    [
        "+8613812345678",
        "+86 138-1234-5678",
        "138 1234 5678",
        "(138) 1234.5678",
        "008613812345678",
        "8613812345678",
        "013812345678",
        " 13812345678 ",
        "１３８１２３４５６７８",
        "١٣٨١٢٣٤٥٦٧٨",
    ],
)
def test_a_number_has_one_token_however_it_is_written(written: str) -> None:
    tokens = PhoneTokens(TWO_KEYS, "CN")
    assert tokens.of(written, 0) == tokens.of("+8613812345678", 0)
    assert TOKEN.fullmatch(tokens.of(written, 0))


@given(st.binary(min_size=1, max_size=80), st.integers(10**6, 10**15))
def test_a_token_is_an_hmac_in_base_32(secret: bytes, digits: int) -> None:
    """Tokens are in lakes and topics for years: they must not change."""
    [token] = PhoneTokens(PhoneKeys([PhoneKey("k1", START, secret)]), "CN").all_of(f"+{digits}")
    hashed = hmac.digest(hmac.digest(secret, b"tel", "sha256"), f"+{digits}".encode(), "sha256")[:16]
    assert token == f"tel_k1_{base64.b32encode(hashed).decode().rstrip('=').lower()}"


def test_numbers_of_a_country_are_read_as_its_people_write_them() -> None:
    german, italian = PhoneTokens(TWO_KEYS, "DE"), PhoneTokens(TWO_KEYS, "IT")
    assert german.of("0151 23456789", 0) == german.of("+49 151 23456789", 0)
    # In Italy the nought is part of the number.
    assert italian.of("06 1234 5678", 0) == italian.of("+39 06 1234 5678", 0)
    assert german.of("0151 23456789", 0) != italian.of("0151 23456789", 0)


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_text_has_a_token_that_does_not_tell_it(phone: str, other: str) -> None:
    tokens = PhoneTokens(TWO_KEYS, "CN")
    assert TOKEN.fullmatch(tokens.of(phone, 0))
    assert PhoneTokens(TWO_KEYS, "CN").of(phone, 0) == tokens.of(phone, 0)
    digits = [re.sub("[^0-9]", "", text) for text in (phone, other)]
    if phone.isascii() and other.isascii() and digits[0] not in digits[1] and digits[1] not in digits[0]:
        assert tokens.of(phone, 0) != tokens.of(other, 0)


def test_a_text_too_long_for_a_number_has_its_token_and_is_not_kept() -> None:
    """A letter may have a run of digits as long as a record: the cache is bounded by entries."""
    tokens = PhoneTokens(TWO_KEYS, "CN")
    before = _cached_token.cache_info()
    long = "+" + "7" * 100_000
    assert tokens.of(long, 0) == tokens.of(long, 0) != tokens.of(long + "7", 0)
    assert TOKEN.fullmatch(tokens.of(long, 0))
    assert _cached_token.cache_info() == before
    tokens.of("+77" + " " * 61, 0)
    assert _cached_token.cache_info() != before


def test_the_key_goes_by_the_time_of_the_event() -> None:
    tokens = PhoneTokens(TWO_KEYS, "CN")
    old, new = tokens.all_of("13812345678")
    assert old.startswith("tel_k1_")
    assert new.startswith("tel_k2_")
    assert [tokens.of("13812345678", NEW_YEAR_US + us) for us in (-1, 0, 1)] == [old, new, new]
    assert tokens.of("13812345678", -5) == old
    assert tokens.of_block("86138123").startswith("blk_k1_")
    assert old[7:] != new[7:]


def test_tasks_are_sent_the_keys_and_nothing_prints_them(tmp_path: Path) -> None:
    keys = ensure_keys(tmp_path / "keys.toml")
    tokens = PhoneTokens(keys, "CN")
    assert pickle.loads(pickle.dumps(tokens)).of("13812345678", 0) == tokens.of("13812345678", 0)
    assert repr(keys.keys[0].secret) not in f"{keys.keys!r} {keys.keys[0]}"
    assert "secret" not in repr(keys.keys)


def test_who_is_first_makes_the_keys_and_nobody_else_may_read_them(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "keys.toml"
    found: list[PhoneKeys] = []
    threads = [threading.Thread(target=lambda: found.append(ensure_keys(path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({keys.newest.secret for keys in found}) == 1
    assert len(found) == 8
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["keys.toml"]


def test_a_rotation_changes_no_token_that_was_given_out(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    before = PhoneTokens(ensure_keys(path), "CN")
    soon = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
    assert add_key(path, soon).id == "k2"
    after = PhoneTokens(read_keys(path), "CN")
    soon_us = round(soon.timestamp() * 1_000_000)
    for time_us in (0, soon_us - 1):
        assert after.of("13812345678", time_us) == before.of("13812345678", time_us)
    assert after.of("13812345678", soon_us) != before.of("13812345678", soon_us)
    for too_early in (soon, soon - timedelta(hours=1), START):
        with pytest.raises(PhoneKeysError, match="must begin more than a day from now"):
            add_key(path, too_early)
    assert path.read_text().startswith("# Keys of the tokens")
    assert len(read_keys(path).keys) == 2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no phone keys"),
        ("key = 3", "no phone keys"),
        ("[[key]]\nid = 'a'\n[other]\n", "no phone keys"),
        ("[[key]]\nid = 'a'\n", "id, from and secret"),
        ("[[key", "not TOML"),
        ("[[key]]\nid = 'a b'\nfrom = 1970-01-01T00:00:00Z\nsecret = ''", "no good id"),
        ("[[key]]\nid = 'a'\nfrom = 1970-01-01T00:00:00\nsecret = ''", "no moment"),
        ("[[key]]\nid = 'a'\nfrom = '1970-01-01T00:00:00Z'\nsecret = ''", "no moment"),
        ("[[key]]\nid = 'a'\nfrom = 1970-01-01T00:00:00Z\nsecret = 'é'", "not base64"),
        ("[[key]]\nid = 'a'\nfrom = 1970-01-01T00:00:00Z\nsecret = 3", "not base64"),
        ("[[key]]\nid = 'a'\nfrom = 1970-01-01T00:00:00Z\nsecret = 'MTIz'", "secret of 3 bytes"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_name(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(PhoneKeysError, match=complaint) as refusal:
        read_keys(path)
    assert str(path) in str(refusal.value)


def test_two_keys_of_one_moment_or_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    ensure_keys(path)
    entry = path.read_text()
    path.write_text(entry + entry)
    with pytest.raises(PhoneKeysError, match="same id"):
        read_keys(path)
    path.write_text(entry + entry.replace('"k1"', '"k2"'))
    with pytest.raises(PhoneKeysError, match="same from"):
        read_keys(path)


def test_numbers_in_what_nobody_could_read_become_tokens_and_dates_stay() -> None:
    tokens = PhoneTokens(TWO_KEYS, "CN")
    value = (
        b'{"phone": "+86 138-1234-5678", "event_time": "2026-11-17T10:00:00.1Z", "n": 42, x 13812345678 \xff'
    )
    redacted = tokens.redacted(value, 0)
    token = tokens.of("13812345678", 0).encode()
    assert redacted == (
        b'{"phone": "%s", "event_time": "2026-11-17T10:00:00.1Z", "n": 42, x %s \xff' % (token, token)
    )
    assert CLEAR.redacted(value, 0) == value


def escaped(text: str) -> str:
    return json.dumps(text)[1:-1]


@pytest.mark.parametrize(
    "number",
    [
        "\uff11\uff13\uff18\uff11\uff12\uff13\uff14\uff15\uff16\uff17\uff18",
        "\u0661\u0663\u0668\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668",
        "138\u20131234\u20135678",
        "138\u00a01234\u30005678",
        "\uff0b86\uff08138\uff091234\uff0d5678",
        "138\u200e1234\u200b5678",
        "\u2460\u2462\u246712345678",
        "".join(chr(0x1D7CE + int(digit)) for digit in "13812345678"),
        "13812345678\u200f",
        "138_1234_5678",
        "138'1234\u20195678",
        "138 - 1234 - 5678",
        "138,1234,5678",
        "+86,138,1234,5678",
        "13,812,345,678",
        "138\uff0c1234\u30015678",
        "138\\1234\\5678",
        "138\t1234\t5678",
        "138\x001234\x005678",
    ],
)
@pytest.mark.parametrize("end", ["", "\u5f20", "\udcff"])
@pytest.mark.parametrize("written", [str, escaped, lambda text: escaped(text).replace("f", "F")])
def test_numbers_in_any_digits_and_escapes_become_tokens(
    number: str, end: str, written: Callable[[str], str]
) -> None:
    tokens = PhoneTokens(TWO_KEYS, "CN")
    value = f'{{"phone": "{written(number)}", "n": 42{end}'.encode("utf-8", "surrogateescape")
    redacted = tokens.redacted(value, 0)
    token = tokens.of("13812345678", 0).encode()
    assert redacted.count(token) == 1
    assert redacted.startswith(b'{"phone": "')
    assert redacted.endswith(f'", "n": 42{end}'.encode("utf-8", "surrogateescape"))
    assert not re.search(
        rb"[0-9]{5}|\xef\xbc|\xd9|\\u[0-9a-f]{4}\\u[0-9a-f]{4}", redacted.replace(token, b"")
    )


@pytest.mark.parametrize(
    "written",
    [r"138\/1234\/5678", r"138\\/1234\\/5678", r"138\t1234\t5678", r"\\u0031\\u0033\\u003812345678"],
)
def test_numbers_in_strings_within_strings_of_json_become_tokens(written: str) -> None:
    tokens = PhoneTokens(TWO_KEYS, "CN")
    redacted = tokens.redacted(f'{{"phone":"{written}","n":1'.encode(), 0).decode()
    assert redacted.replace("\\", "") == f'{{"phone":"{tokens.of("13812345678", 0)}","n":1'


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize(
    "number", ["13812345678", "+86 138-1234-5678", "138,1234,5678", "+86 (138) 1234 - 5678"]
)
def test_numbers_in_utf_16_and_utf_32_become_tokens(encoding: str, number: str) -> None:
    tokens = PhoneTokens(TWO_KEYS, "CN")
    redacted = tokens.redacted(f'{{"phone":"{number}","name":"\u5f20","n":42'.encode(encoding), 0)
    token = tokens.of("13812345678", 0).encode()
    assert redacted.count(token) == 1
    assert re.search(rb"[0-9]{3}", redacted.replace(b"\0", b"").replace(token, b"")) is None


@pytest.mark.parametrize(
    "text",
    [
        "[138,1234,5678]",
        "[138, 1234, 5678, 9012]",
        '{"codes":[200,200,404,500,1200],"more":[1,2,3,4,5,6,7,8,9,10]}',
        "1, 2, 3, 4, 5, 6, 7, 8",
        "1,2,3,4,5,6,7,8,9,10,11,12",
        "100, 200, 300, 400",
        "\u4e00\u30011\u30012\u30013\u30014\u30015\u30016\u30017\u30018",
        "1,234,567 and 12,345,678.50 of 123,456,789",
        '{"cents":250,"rate":0.75,"step":3,"total":5}',
        "2026-11-17T10:00:00,123Z",
        "user_12 did task_34 in 5'30",
        "\0\0\0\x01\0\0\0\x02\0\0\0\x031\0\0\0\0\0\0\0002\0\0\0\0\0\0\0003\0\0\0\0\0\0\0004567",
    ],
)
def test_lists_of_small_numbers_amounts_and_times_stay(text: str) -> None:
    assert PhoneTokens(TWO_KEYS, "CN").redacted(text.encode(), 0) == text.encode()


def test_numbers_in_a_list_are_tokens_of_their_own() -> None:
    tokens = PhoneTokens(TWO_KEYS, "CN")
    one, other = (tokens.of(number, 0).encode() for number in ("13812345678", "13912345678"))
    for value in (b"[%s,%s]", b'["%s","%s"]', b"%s,%s"):
        assert tokens.redacted(value % (b"13812345678", b"13912345678"), 0) == value % (one, other)


@given(st.binary(max_size=200) | st.text("\\u0123dDfFeEcC9", max_size=60).map(str.encode))
def test_any_bytes_without_numbers_stay_as_they_are(value: bytes) -> None:
    tokens = PhoneTokens(TWO_KEYS, "CN")
    redacted = tokens.redacted(value, 0)
    assert redacted == value or b"tel_" in redacted


@given(st.binary(max_size=300))
def test_what_was_sealed_is_opened_by_the_keys_alone(value: bytes) -> None:
    tokens = PhoneTokens(TWO_KEYS, "CN")
    sealed = tokens.sealed(value, PLACE, NEW_YEAR_US)
    assert tokens.opened(sealed, PLACE) == value
    assert tokens.sealed(value, PLACE, NEW_YEAR_US) == sealed
    assert tokens.opened(tokens.sealed(value, PLACE, 0), PLACE) == value
    assert tokens.sealed(value, PLACE, 0) != sealed
    assert nonce_of(tokens.sealed(value + b"x", PLACE, 0)) != nonce_of(tokens.sealed(value, PLACE, 0))
    with pytest.raises(PhoneKeysError, match="not among the keys"):
        PhoneTokens(PhoneKeys(TWO_KEYS.keys[:1]), "CN").opened(sealed, PLACE)
    other = PhoneKeys([PhoneKey("k2", NEW_YEAR, os.urandom(32))])
    with pytest.raises(PhoneKeysError, match="does not open"):
        PhoneTokens(other, "CN").opened(sealed, PLACE)
    with pytest.raises(PhoneKeysError):
        tokens.opened(sealed[:-1], PLACE)
    with pytest.raises(PhoneKeysError):
        tokens.opened(value[:40], PLACE)


def nonce_of(sealed: bytes) -> bytes:
    """Behind the version and the id of the key, of two letters."""
    return sealed[4:16]


@given(st.binary(max_size=50), st.binary(max_size=20), st.binary(max_size=20))
def test_a_seal_is_opened_for_its_own_place_alone(value: bytes, place: bytes, other: bytes) -> None:
    tokens = PhoneTokens(TWO_KEYS, "CN")
    sealed = tokens.sealed(value, place, 0)
    assert tokens.opened(sealed, place) == value
    if other != place:
        with pytest.raises(PhoneKeysError, match="has the seal of another record"):
            tokens.opened(sealed, other)
        # The same nonce for two places would give the key of the tags away.
        assert nonce_of(tokens.sealed(value, other, 0)) != nonce_of(sealed)


def test_what_ends_a_place_is_no_part_of_the_value_to_a_nonce() -> None:
    tokens = PhoneTokens(TWO_KEYS, "CN")
    assert nonce_of(tokens.sealed(b"2x", b"t/0/1", 0)) != nonce_of(tokens.sealed(b"x", b"t/0/12", 0))


def test_a_seal_of_another_version_is_not_opened_and_says_what_to_do() -> None:
    tokens = PhoneTokens(TWO_KEYS, "CN")
    old = b"\x01" + tokens.sealed(b"x", PLACE, 0)[1:]
    with pytest.raises(
        PhoneKeysError, match=r"not sealed by a pipeline of this.*redrive` sends the record from"
    ):
        tokens.opened(old, PLACE)


def test_a_running_pipeline_takes_a_new_key_and_keeps_the_old_ones_when_the_file_breaks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = PipelineSettings("127.0.0.1:9092", tmp_path)
    phones = PhonesOfSettings(settings)
    path = tmp_path / "phone-keys.toml"
    first = phones.now()
    assert phones.now() is first
    later = datetime.now(UTC) + timedelta(days=2)
    add_key(path, later)
    later_us = round(later.timestamp() * 1_000_000) + 1
    assert phones.now().of("13812345678", later_us).startswith("tel_k2_")
    path.write_text("[[key")
    kept = phones.now()
    assert kept.of("13812345678", later_us).startswith("tel_k2_")
    assert "not TOML" in caplog.text
    caplog.clear()
    assert phones.now() is kept
    path.unlink()
    assert phones.now() is kept
    assert phones.now() is kept
    assert caplog.text.count("cannot be read") == 1


def test_keys_that_were_named_are_not_made(tmp_path: Path) -> None:
    settings = PipelineSettings(
        "127.0.0.1:9092", tmp_path, extensions=(RewardsSettings(PhoneSettings(keys=tmp_path / "mine")),)
    )
    with pytest.raises(PhoneKeysError, match="cannot be read"):
        PhonesOfSettings(settings)
    clear = PipelineSettings(
        "127.0.0.1:9092", tmp_path, extensions=(RewardsSettings(PhoneSettings(clear=True)),)
    )
    assert PhonesOfSettings(clear).now().of("138", 0) == "138"
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_country_is_refused() -> None:
    with pytest.raises(PhoneKeysError, match="no country"):
        PhoneTokens(TWO_KEYS, "ZZ")


def test_there_are_names_of_countries_in_every_language_on_offer() -> None:
    assert all(LOCALE_DATA["CN"].get(language) for language in LANGUAGES)
