"""The keys by which phone numbers become tokens: a file of them, to which a rotation adds one.

The file is TOML, for people and for whatever hands out secrets::

    [[key]]
    id = "k1"
    from = 1970-01-01T00:00:00Z
    secret = "…"                      # 32 random bytes in base64

A key is for events from its moment on until the next one's, by event time: so a batch that comes again, and a
backfill, give the same tokens. Who takes an old key out of the file makes its tokens meaningless for ever.
Only the driver reads the file; tasks are sent the keys, and nothing prints them.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import secrets
import tomllib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from tidelog.spark.dead_letters.letter import SealError
from tidelog.spark.runtime.private_directory import make_private
from tidelog_rewards.events import MAX_AHEAD

FILE_NAME = "phone-keys.toml"
"""Where the keys are if nobody says, in the pipelines' directory."""

_SECRET_BYTES = 32
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ID = re.compile("[A-Za-z0-9-]{1,32}")
_TITLE = """\
# Keys of the tokens that stand for phone numbers. Who has them can find out whose token it is: keep them as
# you keep passwords, and keep a copy. `tidelog phones rotate` adds one.
"""


class PhoneKeysError(SealError):
    """A file of keys that cannot be used; the text names it and the mend."""


@dataclass(frozen=True, slots=True)
class PhoneKey:
    """One key, and from when on it is used."""

    id: str
    since: datetime
    secret: bytes = field(repr=False)

    @property
    def since_us(self) -> int:
        """The same in microseconds since 1970."""
        return round((self.since - _EPOCH).total_seconds() * 1_000_000)


class PhoneKeys:
    """The keys of a file, the oldest first."""

    def __init__(self, keys: Sequence[PhoneKey]) -> None:
        self.keys = tuple(sorted(keys, key=lambda key: key.since))
        self._since_us = [key.since_us for key in self.keys]

    def at(self, time_us: int) -> PhoneKey:
        """The key for an event of a moment; what is older than all keys has the first."""
        return self.keys[max(0, bisect_right(self._since_us, time_us) - 1)]

    @property
    def newest(self) -> PhoneKey:
        """The key that was added last."""
        return self.keys[-1]

    def by_id(self, id: str) -> PhoneKey | None:
        """A key by its name, if it is still there."""
        return next((key for key in self.keys if key.id == id), None)


def read_keys(path: Path) -> PhoneKeys:
    """The keys of a file; raises :class:`PhoneKeysError`."""
    try:
        told = tomllib.loads(path.read_text())
    except OSError as error:
        raise PhoneKeysError(f"the phone keys in {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PhoneKeysError(f"the phone keys in {path} are not TOML: {error}") from error
    entries = told.get("key")
    if set(told) != {"key"} or not isinstance(entries, list) or not entries:
        raise PhoneKeysError(f"{path} has no phone keys: it must hold [[key]] tables and nothing else")
    keys = [_key(path, number, entry) for number, entry in enumerate(entries, 1)]
    for name in ("id", "since"):
        if len({getattr(key, name) for key in keys}) != len(keys):
            raise PhoneKeysError(f"two phone keys in {path} have the same {name.replace('since', 'from')}")
    return PhoneKeys(keys)


def ensure_keys(path: Path) -> PhoneKeys:
    """The keys of a file, which is made with a random key if there is none."""
    if not path.exists():
        _create(path, _TITLE + _entry(random_keys().newest))
    return read_keys(path)


def random_keys() -> PhoneKeys:
    """Keys that nobody has: for tokens that are thrown away, or to begin a file with."""
    return PhoneKeys([PhoneKey("k1", _EPOCH, secrets.token_bytes(_SECRET_BYTES))])


def add_key(path: Path, since: datetime) -> PhoneKey:
    """Rotate: add a random key for events from ``since`` on, of which none may have been worked off yet."""
    there = read_keys(path)
    if since <= max(there.newest.since, datetime.now(UTC) + MAX_AHEAD):
        raise PhoneKeysError(
            "a new phone key must begin more than a day from now, as events may be ahead, and later than the "
            f"newest in {path} ({_moment(there.newest.since)}), or tokens that were given out would change"
        )
    key = PhoneKey(_free_id(there), since, secrets.token_bytes(_SECRET_BYTES))
    _replace(path, f"{path.read_text().rstrip()}\n\n{_entry(key)}")
    return key


def _free_id(keys: PhoneKeys) -> str:
    taken = {key.id for key in keys.keys}
    return next(name for number in count(len(taken) + 1) if (name := f"k{number}") not in taken)


def _key(path: Path, number: int, entry: Any) -> PhoneKey:
    def wrong(what: str) -> PhoneKeysError:
        return PhoneKeysError(f"key {number} in {path} {what}")

    if not isinstance(entry, dict) or set(entry) != {"id", "from", "secret"}:
        raise wrong("must have id, from and secret, and nothing else")
    id, since, secret = entry["id"], entry["from"], entry["secret"]
    if not isinstance(id, str) or _ID.fullmatch(id) is None:
        raise wrong("has no good id: up to 32 letters, digits and dashes")
    if not isinstance(since, datetime) or since.tzinfo is None:
        raise wrong("has no moment as its from: write 2026-11-17T00:00:00Z, without quotes")
    try:
        decoded = base64.b64decode(secret, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise wrong("has a secret that is not base64") from None
    if len(decoded) < _SECRET_BYTES:
        raise wrong(f"has a secret of {len(decoded)} bytes: it takes {_SECRET_BYTES} at least")
    return PhoneKey(id, since.astimezone(UTC), decoded)


def _entry(key: PhoneKey) -> str:
    secret = base64.b64encode(key.secret).decode()
    return f'[[key]]\nid = "{key.id}"\nfrom = {_moment(key.since)}\nsecret = "{secret}"\n'


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _create(path: Path, text: str) -> None:
    """Make the file, whole or not at all; where another process was quicker, theirs is it."""
    written = _beside(path, text)
    try:
        os.link(written, path)
    except FileExistsError:
        # Another process was quicker; its keys are the ones that are read afterwards.
        pass
    except OSError as error:
        raise PhoneKeysError(f"the phone keys in {path} cannot be written: {error.strerror}") from error
    finally:
        written.unlink()


def _replace(path: Path, text: str) -> None:
    try:
        # Through a link, lest it is replaced by a file.
        _beside(path.resolve(), text).replace(path.resolve())
    except OSError as error:
        raise PhoneKeysError(f"the phone keys in {path} cannot be written: {error.strerror}") from error


def _beside(path: Path, text: str) -> Path:
    """A file next to it, which nobody else may read, and which is on the disk."""
    written = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        make_private(path.parent)
        with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise PhoneKeysError(f"the phone keys in {path} cannot be written: {error.strerror}") from error
    return written
