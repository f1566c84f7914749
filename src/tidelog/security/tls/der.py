"""Just enough of DER to walk over a certificate: tag, length, content.

Why not ``cryptography``: the names of clients are read in every handshake with a client's certificate, on the
loop; names have to come out as Java prints them, which takes the bytes as they are in the certificate; and
importing it takes longer than a broker's start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

INTEGER = 0x02
OBJECT_IDENTIFIER = 0x06
UTF8_STRING = 0x0C
SEQUENCE = 0x30
SET = 0x31
UTC_TIME = 0x17


class Element(NamedTuple):
    """One element: what kind it is, its content, and all of it as it stands in the file."""

    tag: int
    content: bytes
    encoded: bytes


def elements(data: bytes) -> Iterator[Element]:
    """The elements in ``data``, one behind the other; ``ValueError`` where it is not DER."""
    pos = 0
    while pos < len(data):
        element = _element(data, pos)
        yield element
        pos += len(element.encoded)


def only(data: bytes) -> Element:
    """The first element of ``data``."""
    return _element(data, 0)


def _element(data: bytes, pos: int) -> Element:
    if len(data) < pos + 2:
        raise ValueError("the data end within an element")
    tag, length, start = data[pos], data[pos + 1], pos + 2
    if length & 0x80:
        count = length & 0x7F
        if not 1 <= count <= 4 or len(data) < start + count:
            raise ValueError("an element has a length that cannot be")
        length = int.from_bytes(data[start : start + count], "big")
        start += count
    end = start + length
    if end > len(data):
        raise ValueError("an element ends behind the data")
    return Element(tag, data[start:end], data[pos:end])


def dotted(content: bytes) -> str:
    """An object identifier in its usual notation."""
    arcs: list[int] = []
    value = 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(value)
            value = 0
    if not arcs:
        raise ValueError("an object identifier is empty")
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))
