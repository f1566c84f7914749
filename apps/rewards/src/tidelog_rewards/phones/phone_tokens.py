"""Tokens of phone numbers: what pipelines write in their place, unless they were asked for the numbers.

A token is ``tel_<key>_<26 letters and digits>``: a keyed hash of the number in its international form, so the
same number is the same token, however it was written, in the lake, in topics, in tables and in alerts, and
they can be joined and counted. Without the keys (``phone_keys``) it cannot be found out whose it is, not even
by trying all numbers. A block of numbers becomes ``blk_…`` in the same way.

Records that no pipeline could read are kept as dead letters, and may hold a number anywhere. In their value
every run of digits that is as long as a number, of any script, as JSON's escapes and in UTF-16, becomes a
token (:meth:`PhoneTokens.redacted`); the bytes as they came are sealed (:meth:`PhoneTokens.sealed`), so that
``tidelog deadletters`` can send them again. A seal is AES-GCM: version, length of the key's id, id, nonce,
ciphertext and tag. The place of the record is not in it, but under the tag: nobody who may write letters gets
a record opened as that of another topic.

:class:`PhoneTokens` is made on the driver and pickled to tasks. :data:`CLEAR` leaves everything as it is.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog_rewards.phones.phone_keys import (
    FILE_NAME,
    PhoneKeys,
    PhoneKeysError,
    ensure_keys,
    read_keys,
)
from tidelog_rewards.settings import RewardsSettings

if TYPE_CHECKING:
    from tidelog.spark.settings import PipelineSettings

logger = logging.getLogger(__name__)

_NUMBER, _BLOCK, _SEAL, _NONCE = "tel", "blk", "seal", "nonce"
_HASH_BYTES = 16
_HASH_BLOCK = 64
_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_PAIRS = [first + second for first in _LETTERS for second in _LETTERS]
_PAIR_SHIFTS = range(120, -1, -10)
"""Base 32, two letters at a time: 16 bytes and two bits of nothing are 13 pairs."""
_CACHED = 1 << 16
_LONGEST_CACHED = 64
"""Numbers are shorter, however they are written. A run of digits may be as long as a record."""
_NO_DIGIT = re.compile("[^0-9]")
_LEAST_DIGITS = 7
"""What has fewer digits is no phone number: extensions, years, amounts."""
_MOST_NATIONAL_DIGITS = 11
_IS_INTERNATIONAL = re.compile(rf"\+[0-9]{{{_LEAST_DIGITS},}}").fullmatch
_DIGITS, _PLUSES = r"\d\u00b2\u00b3\u00b9\u2070\u2074-\u2079\u2080-\u2089\u2460-\u2468\u24ea", r"+\uff0b"
_DIGIT, _PLUS = f"[{_DIGITS}]", f"[{_PLUSES}]"
"""Of any script, of full width, raised, lowered and in circles: :func:`international` reads all of these."""
_GAP = (
    r"(?:\\t|[ \t().\-/_'\\\u00a0\u00ad\u00b7\u2000-\u2015\u2018\u2019\u202a-\u202f\u205f-\u2064\u2066-\u2069"
    r"\u2212\u3000\u30fc\ufe58\ufe63\ufeff\uff07-\uff09\uff0d-\uff0f\uff3c\uff3f])"
)
"""What may stand between digits: blanks, dashes, brackets, points, strokes, some of full width or unseen.
JSON may have a stroke as ``\\/`` and a tab as ``\\t``."""
_GAPS = 3
_COMMA = r"[,\u060c\u066c\u3001\ufe10\ufe11\ufe50\ufe51\uff0c\uff64]"
_LEAST_WITH_COMMAS = 10
_WITH_COMMAS = (
    rf"(?<!{_DIGIT})(?<!{_DIGIT}{_COMMA})(?<!\[){_PLUS}?(?=(?:{_COMMA}?{_DIGIT}){{{_LEAST_WITH_COMMAS}}})"
    rf"{_DIGIT}{{1,4}}(?:{_COMMA}{_DIGIT}{{3,4}}){{2,}}(?!{_COMMA}?{_DIGIT}|\])"
)
"""Commas stand between numbers more often than in one: they count where ten digits or more are in groups
of three or four, and not in a list in brackets."""
_NUMBER_LIKE = re.compile(
    # Most characters begin nothing, which is seen at once.
    rf"(?=[{_PLUSES}{_DIGITS}])"
    rf"(?:{_PLUS}?{_DIGIT}(?:{_GAP}{{0,{_GAPS}}}{_DIGIT}){{{_LEAST_DIGITS - 1},}}|{_WITH_COMMAS})"
)
_DATE = re.compile("(?:19|20)[0-9]{2}-[01][0-9]-[0-3][0-9]")
_HIGH, _LOW = "[dD][89abAB][0-9a-fA-F]{2}", "[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPED = re.compile(rf"\\u(?:({_HIGH})\\u({_LOW})|([0-9a-fA-F]{{4}}))")
_NULS = re.compile("(?<!\0)\0{1,3}(?!\0)")
"""What UTF-16 and UTF-32 have beside each character of ASCII."""
_SEAL_VERSION = b"\x02"
_NONCE_BYTES = 12


class PhonesWritten(Protocol):
    """How phone numbers are written: as tokens, or as they are."""

    def of(self, phone: str, time_us: int) -> str:
        """What stands for a number in an event of a moment."""

    def of_block(self, block: str) -> str:
        """What stands for a block of numbers."""

    def redacted(self, value: bytes, time_us: int) -> bytes:
        """What stands for a value that nobody could read."""

    def sealed(self, value: bytes, place: bytes, time_us: int) -> bytes:
        """What keeps a value as it came, where :meth:`redacted` does not; ``place``: of its record."""


class PhoneTokens:
    """Tokens of the numbers."""

    def __init__(self, keys: PhoneKeys, country: str) -> None:
        """``country``: where a number without an international prefix is from."""
        self._keys = keys
        self._dialling = _dialling(country)

    def of(self, phone: str, time_us: int) -> str:
        """The token of a number in an event of a moment."""
        key = self._keys.at(time_us)
        token = _cached_token if len(phone) <= _LONGEST_CACHED else _token
        return token(key.secret, key.id, self._dialling, phone)

    def of_block(self, block: str) -> str:
        """The token of a block of numbers; of the oldest key, lest a rotation tears evidence apart."""
        key = self._keys.keys[0]
        return f"{_BLOCK}_{key.id}_{_hash(key.secret, _BLOCK, block)}"

    def all_of(self, phone: str) -> list[str]:
        """The tokens of a number under all keys, the oldest first: to find it wherever it is."""
        return [self.of(phone, key.since_us) for key in self._keys.keys]

    def redacted(self, value: bytes, time_us: int) -> bytes:
        """A text that nobody could read, with tokens where a number may be."""
        text = value.decode("utf-8", "surrogateescape")
        whole = _Shown(text, range(len(text) + 1))
        shown, places = whole.replaced(_NULS, lambda _: "").replaced(_ESCAPED, _character)
        told: list[str] = []
        end = 0
        for found in _NUMBER_LIKE.finditer(shown):
            if _DATE.fullmatch(found[0]) is None:
                told += text[end : places[found.start()]], self.of(found[0], time_us)
                end = places[found.end()]
        return "".join([*told, text[end:]]).encode("utf-8", "surrogateescape")

    def sealed(self, value: bytes, place: bytes, time_us: int) -> bytes:
        """Bytes that only the keys open, as those of a place.

        The same for the same value and place, as a batch that comes again must be.
        """
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = self._keys.at(time_us)
        name = key.id.encode()
        head = _SEAL_VERSION + bytes([len(name)]) + name
        bound = head + place
        # One for each value and place, as it must be: a hash of both, and of where one of them ends.
        both = b"%d:%b%b" % (len(bound), bound, value)
        nonce = hmac.digest(_subkey(key.secret, _NONCE), both, "sha256")[:_NONCE_BYTES]
        return head + nonce + AESGCM(_subkey(key.secret, _SEAL)).encrypt(nonce, value, bound)

    def opened(self, sealed: bytes, place: bytes) -> bytes:
        """What was sealed for a place; raises :class:`PhoneKeysError`."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if sealed[:1] != _SEAL_VERSION or len(sealed) < 2 or len(sealed) < 2 + sealed[1] + _NONCE_BYTES:
            raise PhoneKeysError(
                "this was not sealed by a pipeline of this version: `tidelog deadletters redrive` sends the "
                "record from its topic, as long as it is there"
            )
        end = 2 + sealed[1]
        name = sealed[2:end].decode(errors="replace")
        key = self._keys.by_id(name)
        if key is None:
            raise PhoneKeysError(f"this was sealed with the phone key {name!r}, which is not among the keys")
        nonce, body = sealed[end : end + _NONCE_BYTES], sealed[end + _NONCE_BYTES :]
        try:
            return AESGCM(_subkey(key.secret, _SEAL)).decrypt(nonce, body, sealed[:end] + place)
        except InvalidTag:
            raise PhoneKeysError(
                f"the phone key {name!r} does not open this: it is another of that name, or the letter was "
                "altered, or has the seal of another record"
            ) from None


class _Shown(NamedTuple):
    """A text as it is meant, and where each of its characters, and its end, was in the text that came."""

    text: str
    places: Sequence[int]

    def replaced(self, pattern: re.Pattern[str], meant: Callable[[re.Match[str]], str]) -> _Shown:
        """The text with a character, or nothing, in the place of what a pattern finds."""
        text, before = self
        pieces: list[str] = []
        places: list[int] = []
        end = 0
        for found in pattern.finditer(text):
            character = meant(found)
            pieces += text[end : found.start()], character
            places += before[end : found.start() + len(character)]
            end = found.end()
        if not pieces:
            return self
        return _Shown("".join([*pieces, text[end:]]), [*places, *before[end:]])


def _character(escape: re.Match[str]) -> str:
    """What one of JSON's escapes stands for; nothing for a NUL, which is no part of any text."""
    high, low, alone = escape.groups()
    code = int(alone, 16) if alone else 0x10000 + (int(high, 16) % 0x400 << 10) + int(low, 16) % 0x400
    return chr(code) if code else ""


class ClearPhones:
    """The numbers as they are, for those who have asked for them."""

    def of(self, phone: str, time_us: int) -> str:
        return phone

    def of_block(self, block: str) -> str:
        return block

    def redacted(self, value: bytes, time_us: int) -> bytes:
        return value

    def sealed(self, value: bytes, place: bytes, time_us: int) -> bytes:
        return value


CLEAR = ClearPhones()


class PhonesOfSettings:
    """As the settings say; the driver asks before each batch, so that a rotation needs no restart."""

    def __init__(self, settings: PipelineSettings) -> None:
        """Reads the keys, or makes them; raises ``PhoneKeysError``."""
        phones = settings.extension(RewardsSettings).phones
        self._path = phones.keys or settings.directory / FILE_NAME
        self._country = phones.country
        self._version: tuple[int, int] | None = None
        self._written: PhonesWritten = CLEAR
        if not phones.clear:
            if phones.keys is None:
                ensure_keys(self._path)
            self._version = self._found_version()
            self._written = PhoneTokens(read_keys(self._path), self._country)

    def now(self) -> PhonesWritten:
        """How numbers are written in the next batch; a file that has become useless is told of, once."""
        if self._version is None or (version := self._found_version()) == self._version:
            return self._written
        self._version = version
        try:
            self._written = PhoneTokens(read_keys(self._path), self._country)
        except PhoneKeysError as error:
            logger.warning("%s; the keys stay as they were", error)
        return self._written

    def _found_version(self) -> tuple[int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return (0, 0)
        return found.st_mtime_ns, found.st_ino


class _Dialling(NamedTuple):
    """How numbers are dialled in a country."""

    calling_code: str
    trunk_prefix: str
    """What is dialled before numbers within the country, and is no part of them."""


def _token(secret: bytes, key_id: str, dialling: _Dialling, phone: str) -> str:
    return f"{_NUMBER}_{key_id}_{_hash(secret, _NUMBER, international(phone, dialling))}"


_cached_token = lru_cache(_CACHED)(_token)
"""For those who come back in batch after batch; by the key's parts, which are quick to compare."""


def international(phone: str, dialling: _Dialling) -> str:
    """``+`` and digits, however the number was written; what is no number, as it is."""
    if _IS_INTERNATIONAL(phone):  # as nearly all are
        return phone
    text = phone.strip()
    if not text.isascii():
        # Digits of other scripts and of full width.
        text = unicodedata.normalize("NFKC", text)
        text = "".join(str(unicodedata.decimal(char, char)) for char in text)
    digits = _NO_DIGIT.sub("", text)
    if len(digits) < _LEAST_DIGITS:
        return text
    if text.startswith("+"):
        return f"+{digits}"
    if digits.startswith("00"):
        return f"+{digits[2:]}"
    code, trunk_prefix = dialling
    if digits.startswith(code) and len(digits) > _MOST_NATIONAL_DIGITS:
        return f"+{digits}"
    return f"+{code}{digits.removeprefix(trunk_prefix)}"


def _hash(secret: bytes, kind: str, text: str) -> str:
    """The first bytes of an HMAC with SHA-256, in base 32.

    Almost every event needs one: ``hmac`` and ``base64`` give the same, and take twice as long.
    """
    begun_inner, begun_outer = _hmac_begun(secret, kind)
    inner, outer = begun_inner.copy(), begun_outer.copy()
    inner.update(text.encode("utf-8", "surrogatepass"))
    outer.update(inner.digest())
    bits = int.from_bytes(outer.digest()[:_HASH_BYTES], "big") << 2
    return "".join([_PAIRS[bits >> shift & 0x3FF] for shift in _PAIR_SHIFTS])


@lru_cache(256)
def _hmac_begun(secret: bytes, kind: str) -> tuple[hashlib._Hash, hashlib._Hash]:
    """Both hashes of an HMAC (RFC 2104), which have taken the key; copies go on from there."""
    key = _subkey(secret, kind).ljust(_HASH_BLOCK, b"\0")
    inner, outer = (bytes(each ^ pad for each in key) for pad in (0x36, 0x5C))
    return hashlib.sha256(inner), hashlib.sha256(outer)


@lru_cache(256)
def _subkey(secret: bytes, purpose: str) -> bytes:
    """A key of its own for each purpose, so that none tells about another."""
    return hmac.digest(secret, purpose.encode(), "sha256")


def _dialling(country: str) -> _Dialling:
    from phonenumbers import PhoneMetadata, country_code_for_region

    code = country_code_for_region(country)
    if not code:
        raise PhoneKeysError(f"{country!r} is no country: write its ISO 3166 code, CN for example")
    metadata = PhoneMetadata.metadata_for_region(country)
    return _Dialling(str(code), (metadata.national_prefix if metadata is not None else None) or "")
