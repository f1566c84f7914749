"""Personal tokens: by them programs that act for somebody log in, instead of a browser.

A token is ``tlc_<id>_<secret>`` and is shown once, when it is made; kept is a hash of its secret, which is
too long to be guessed, and whose it is. What the owner may do is worked out at each use, from the roles that
the console has then; groups are those he had when the token was made. Tokens are in a file of one JSON
object, written anew in one step with each change; a crash leaves the old one or the new one.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec

from tidelog.console.refusal import Refusal, not_found
from tidelog.console.settings import Way
from tidelog.decode_errors import DECODE_ERRORS
from tidelog.errors import ConfigError

logger = logging.getLogger(__name__)

PREFIX = "tlc_"
_DAY_MS = 24 * 3600 * 1000
_EACH = 20
_ALL = 5000
_LONGEST_LABEL = 100


class Token(msgspec.Struct, frozen=True):
    """One token, without its secret."""

    id: str
    hash: str
    user: str
    way: Way
    groups: tuple[str, ...]
    label: str
    read_only: bool
    made_at_ms: int
    ends_at_ms: int


class _File(msgspec.Struct):
    tokens: list[Token] = []


class Tokens:
    """All of them; ``now_ms`` is the wall clock."""

    def __init__(self, path: Path, most_days: float, now_ms: Callable[[], int]) -> None:
        """Raises ``ConfigError`` where the file cannot be read: nobody shall lose tokens by a typo."""
        self._path = path
        self._most_days = most_days
        self._now_ms = now_ms
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_File) if path.exists() else _File()
        except (OSError, *DECODE_ERRORS) as error:
            raise ConfigError(f"cannot read the tokens in {path}: {error}; fix or remove the file") from None
        self._by_id = {each.id: each for each in found.tokens}

    def make(
        self, user: str, way: Way, groups: frozenset[str], label: str, days: float, *, read_only: bool
    ) -> tuple[str, Token]:
        """A new token, and what is kept of it; raises a refusal."""
        if not label.strip() or len(label) > _LONGEST_LABEL or not label.isprintable():
            raise Refusal(f"a token needs a label of 1 to {_LONGEST_LABEL} characters")
        if not 0 < days <= self._most_days:
            raise Refusal(f"a token lasts at most {self._most_days:g} days (mcp.token_days)")
        self._drop_ended()
        if len(self.of(user, way)) >= _EACH or len(self._by_id) >= _ALL:
            raise Refusal(f"too many tokens: each user may have {_EACH}; revoke one", 409, "FULL")
        now_ms = self._now_ms()
        token_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        token = Token(
            token_id,
            _hash(secret),
            user,
            way,
            tuple(sorted(groups)),
            label.strip(),
            read_only,
            now_ms,
            now_ms + int(days * _DAY_MS),
        )
        self._write({**self._by_id, token_id: token})
        return f"{PREFIX}{token_id}_{secret}", token

    def find(self, text: str) -> Token | None:
        """Whose token this is, if it is one and has not ended."""
        token_id, _, secret = text.removeprefix(PREFIX).partition("_")
        token = self._by_id.get(token_id)
        # Compared in any case: how long it takes shall not tell which ids there are.
        fits = hmac.compare_digest(_hash(secret), token.hash if token is not None else _hash(""))
        if token is None or not fits or token.ends_at_ms <= self._now_ms():
            return None
        return token

    def of(self, user: str, way: Way) -> list[Token]:
        """Those of one person that have not ended."""
        return [each for each in self.all() if (each.user, each.way) == (user, way)]

    def all(self) -> list[Token]:
        """Those that have not ended, the newest first."""
        now_ms = self._now_ms()
        good = [each for each in self._by_id.values() if each.ends_at_ms > now_ms]
        return sorted(good, key=lambda each: (-each.made_at_ms, each.id))

    def get(self, token_id: str) -> Token:
        """A token by its id; raises a refusal."""
        token = self._by_id.get(token_id)
        if token is None:
            raise not_found(f"token {token_id[:40]!r} does not exist")
        return token

    def revoke(self, token_id: str) -> None:
        """From now on it is nobody's."""
        self._write({each: token for each, token in self._by_id.items() if each != token_id})

    def _drop_ended(self) -> None:
        now_ms = self._now_ms()
        self._by_id = {each: token for each, token in self._by_id.items() if token.ends_at_ms > now_ms}

    def _write(self, by_id: dict[str, Token]) -> None:
        """Put the file in its place; what could not be written is not so."""
        beside = self._path.with_name(self._path.name + ".new")
        try:
            file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(file, "wb") as out:
                out.write(msgspec.json.encode(_File(list(by_id.values()))))
                out.flush()
                os.fsync(out.fileno())
            beside.replace(self._path)
        except OSError as error:
            logger.error("cannot write the tokens in %s: %s", self._path, error)
            raise Refusal(
                f"cannot write the tokens: {(error.strerror or str(error)).lower()}; nothing was changed",
                500,
                "NOT_WRITTEN",
            ) from None
        self._by_id = by_id


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
