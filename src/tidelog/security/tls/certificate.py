"""What a certificate says: whose it is, for which hosts, and from when until when.

Names are printed as Java's ``X500Principal.getName()`` does (RFC 2253), for rules and access lists that were
written for Kafka hold them in that form: last part first, the nine short names of that standard and numbers
for all other types, whose values are shown in hexadecimal.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime

from tidelog.security.tls import der

_SHORT_NAMES = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_COMMON_NAME = "2.5.4.3"
_ALTERNATIVE_NAMES = "2.5.29.17"

# Tags of text, and how it is encoded.
_TEXTS = {
    0x0C: "utf-8",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1B: "ascii",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
_ESCAPED = frozenset(',=+<>#;"\\')
_BLANKS = " \r"

_MESSAGE_HEADER_BYTES = 4
_LENGTH_BYTES = 3
_VERSION_TAG = 0xA0
_EXTENSIONS_TAG = 0xA3
_OTHER, _EMAIL, _DNS, _URI, _IP = 0xA0, 0x81, 0x82, 0x86, 0x87


@dataclass(frozen=True, slots=True)
class Certificate:
    """What people, rules and rotation want to know of a certificate."""

    subject: str
    """The distinguished name, as Java prints it."""
    common_name: str | None
    alternative_names: frozenset[str]
    """Hosts, addresses and the like, each with its kind: ``DNS:broker1``."""
    not_before: datetime
    not_after: datetime

    def validity_problem(self, now: datetime | None = None) -> str | None:
        """Why it cannot be used now, or ``None``."""
        now = now or datetime.now(UTC)
        if now > self.not_after:
            return f"the certificate of {self.subject} expired on {self.not_after:%Y-%m-%d %H:%M} UTC"
        if now < self.not_before:
            return (
                f"the certificate of {self.subject} is not valid before {self.not_before:%Y-%m-%d %H:%M} UTC"
            )
        return None


def read_certificate(encoded: bytes) -> Certificate:
    """Read a certificate (DER); ``ValueError`` if it is none."""
    try:
        return _read(encoded)
    except (ValueError, IndexError, StopIteration) as error:
        raise ValueError(f"not an X.509 certificate: {error}") from error


def shown_subject(message: bytes, *, is_tls_1_3: bool) -> str | None:
    """Whose certificate a handshake's Certificate message shows first; ``None`` if it shows none."""
    pos = _MESSAGE_HEADER_BYTES
    if is_tls_1_3:
        # The context of the request that it answers.
        pos += 1 + int.from_bytes(message[pos : pos + 1], "big")
    pos += _LENGTH_BYTES
    length = int.from_bytes(message[pos : pos + _LENGTH_BYTES], "big")
    pos += _LENGTH_BYTES
    try:
        return read_certificate(bytes(message[pos : pos + length])).subject
    except ValueError:
        return None


def _read(encoded: bytes) -> Certificate:
    body = list(der.elements(der.only(der.only(encoded).content).content))
    if body[0].tag == _VERSION_TAG:
        del body[0]
    _serial, _algorithm, _issuer, validity, subject = body[:5]
    begins, ends = (_time(each) for each in der.elements(validity.content))
    alternative_names: frozenset[str] = frozenset()
    for each in body[6:]:
        if each.tag == _EXTENSIONS_TAG:
            alternative_names = _find_alternative_names(each.content)
    return Certificate(_name(subject.content), _common_name(subject.content), alternative_names, begins, ends)


def _time(element: der.Element) -> datetime:
    text = element.content.decode("ascii")
    if element.tag == der.UTC_TIME:
        # Two digits of the year: those of this century below fifty.
        text = ("20" if int(text[:2]) < 50 else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _parts(name: bytes) -> list[list[tuple[str, der.Element]]]:
    """A name's parts in their order; a part may have several types and values."""
    parts = []
    for part in der.elements(name):
        pairs = []
        for pair in der.elements(part.content):
            kind, value = der.elements(pair.content)
            pairs.append((der.dotted(kind.content), value))
        parts.append(pairs)
    return parts


def _name(name: bytes) -> str:
    return ",".join("+".join(_pair(*pair) for pair in part) for part in reversed(_parts(name)))


def _common_name(name: bytes) -> str | None:
    texts = [_text(value) for part in _parts(name) for kind, value in part if kind == _COMMON_NAME]
    return texts[-1] if texts else None


def _pair(kind: str, value: der.Element) -> str:
    text = _text(value) if kind in _SHORT_NAMES else None
    if text is None:
        return f"{_SHORT_NAMES.get(kind, kind)}=#{value.encoded.hex()}"
    return f"{_SHORT_NAMES[kind]}={_escaped(text)}"


def _text(value: der.Element) -> str | None:
    encoding = _TEXTS.get(value.tag)
    return None if encoding is None else value.content.decode(encoding, "replace")


def _escaped(text: str) -> str:
    written = "".join("\\" + each if each in _ESCAPED else "\\00" if each == "\0" else each for each in text)
    begin = len(written) - len(written.lstrip(_BLANKS))
    end = max(len(written.rstrip(_BLANKS)), begin)
    blanks_before, blanks_behind = written[:begin], written[end:]
    return (
        "".join("\\" + each for each in blanks_before)
        + written[begin:end]
        + "".join("\\" + each for each in blanks_behind)
    )


def _find_alternative_names(extensions: bytes) -> frozenset[str]:
    for extension in der.elements(der.only(extensions).content):
        kind, *_, value = der.elements(extension.content)
        if der.dotted(kind.content) == _ALTERNATIVE_NAMES:
            return frozenset(
                _alternative_name(each) for each in der.elements(der.only(value.content).content)
            )
    return frozenset()


def _alternative_name(element: der.Element) -> str:
    tag, content, encoded = element
    if tag == _IP and len(content) in (4, 16):
        return f"IP:{ipaddress.ip_address(content)}"
    if tag in (_EMAIL, _DNS, _URI):
        kind = {_EMAIL: "email", _DNS: "DNS", _URI: "URI"}[tag]
        return f"{kind}:{content.decode('ascii', 'replace')}"
    return f"other:{encoded.hex()}"
