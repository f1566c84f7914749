"""Java's ``.properties`` format: ``server.properties``, ``meta.properties`` and what clients are given.

Lines end in LF, CR or CRLF. ``#`` or ``!`` as the first visible character makes a comment. A key ends at
the first unescaped ``=``, ``:`` or blank; an odd number of backslashes at the end of a line joins the
next one, without its leading blanks. ``\\t \\n \\r \\f`` and ``\\uXXXX`` are escapes; a backslash before any
other character is dropped. A later entry for a key replaces an earlier one.

Java reads ISO-8859-1; files are written as UTF-8 nowadays, so UTF-8 is tried first.
"""

from __future__ import annotations

import re
from pathlib import Path

from tidelog.errors import ConfigError

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\n|\r")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: str | Path) -> dict[str, str]:
    """The entries of a properties file; raises :class:`ConfigError` that names the file."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}; give the path of a properties file"
        ) from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("iso-8859-1")
    try:
        return parse_properties(text)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse_properties(text: str) -> dict[str, str]:
    """The entries of properties text, in order; raises ``ValueError`` on a broken ``\\u`` escape."""
    entries: dict[str, str] = {}
    for line in _logical_lines(text):
        end = _key_end(line)
        rest = line[end:].lstrip(_BLANKS)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANKS)
        entries[_unescape(line[:end])] = _unescape(rest)
    return entries


def _logical_lines(text: str) -> list[str]:
    """Lines with comments and blank lines left out and continued ones joined."""
    lines: list[str] = []
    pending: str | None = None
    for natural in _LINE_END.split(text):
        stripped = natural.lstrip(_BLANKS)
        if pending is None and (not stripped or stripped[0] in "#!"):
            continue
        line = stripped if pending is None else pending + stripped
        trailing = len(stripped) - len(stripped.rstrip("\\"))
        if trailing % 2:
            pending = line[:-1]
        else:
            pending = None
            lines.append(line)
    if pending:
        lines.append(pending)
    return lines


def _key_end(line: str) -> int:
    escaped = False
    for at, character in enumerate(line):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character in "=:" or character in _BLANKS:
            return at
    return len(line)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    units = _ESCAPE.sub(_escaped_character, text)
    # Java text is UTF-16: a character beyond the basic plane is written as two \u escapes.
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escaped_character(match: re.Match[str]) -> str:
    code = match[1]
    if code == "u":
        raise ValueError(f"{match[0]}{match.string[match.end() : match.end() + 4]} is not a \\uXXXX escape")
    if len(code) == 5:
        return chr(int(code[1:], 16))
    return _CONTROLS.get(code, code)
