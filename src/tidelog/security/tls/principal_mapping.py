"""``ssl.principal.mapping.rules``: from the name in a client's certificate to the name it is known by.

Rules stand in a list, divided by commas: ``DEFAULT`` takes the distinguished name as it is, and
``RULE:pattern/replacement/`` takes the replacement where the pattern matches the whole name, with ``L`` or
``U`` at the end in lower or upper case. The first rule that matches decides; where none does, the client is
refused.

Patterns are Java's. Nearly all are Python's, too; those that are not are refused at start. A reference to a
group that the pattern does not have stays as it is written.

Whoever has a certificate chooses what is matched, and Python's ``re`` may try for ever (``(a+)+b``) while
nothing else runs: patterns are matched in bounded time (``linear_regex``), and names with control characters
by no rule. What that cannot do, look-around say, is left to ``re``. Names that were mapped are kept.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass

from tidelog.errors import ConfigError
from tidelog.security.kerberos.linear_regex import Found, LinearRegex, RegexFault

_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,|$)"
)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_MAX_KNOWN = 1000
_NAMED_GROUP = re.compile(r"\(\?<(?=[A-Za-z])")
_REFERENCE = re.compile(r"\\(?P<escaped>.)|\$(?P<number>\d+)|\$\{(?P<name>[A-Za-z][A-Za-z0-9]*)\}")


class NoRuleAppliesError(ValueError):
    """No rule has a name for this client."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""
    linear: LinearRegex | None = None
    """The same pattern in bounded time, if that can be."""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.linear is not None:
            if _CONTROL.search(name) or self.linear.fullmatch(name) is None:
                return None
            mapped = self._replaced(self.linear, name)
        elif self.pattern.fullmatch(name) is None:
            return None
        else:
            mapped = self.pattern.sub(self._expand_match, name)
        if self.case:
            return mapped.lower() if self.case == "L" else mapped.upper()
        return mapped

    def _replaced(self, linear: LinearRegex, name: str) -> str:
        """Every place at which the pattern matches, replaced."""
        written: list[str] = []
        pos = search_from = 0
        while search_from <= len(name) and (found := linear.search(name, search_from)) is not None:
            written += (name[pos : found.start], self._expand_found(found))
            pos = found.end
            search_from = found.end + (found.end == found.start)
        return "".join((*written, name[pos:]))

    def _expand_found(self, found: Found) -> str:
        return self._expand(found.groups)

    def _expand_match(self, match: re.Match[str]) -> str:
        return self._expand((match[0], *match.groups()))

    def _expand(self, groups: tuple[str | None, ...]) -> str:
        assert self.pattern is not None
        names = self.pattern.groupindex

        def value(reference: re.Match[str]) -> str:
            if reference["escaped"] is not None:
                return reference["escaped"]
            if reference["name"] is not None:
                return groups[names[reference["name"]]] or ""
            return _numbered(groups, reference["number"])

        return _REFERENCE.sub(value, self.replacement)


def _numbered(groups: tuple[str | None, ...], digits: str) -> str:
    """As many digits as name a group are its number, as in Java; what follows them is text."""
    for length in range(len(digits), 0, -1):
        if int(digits[:length]) < len(groups):
            return (groups[int(digits[:length])] or "") + digits[length:]
    return f"${digits}"


class PrincipalMapping:
    """The rules of one listener."""

    def __init__(self, text: str = "DEFAULT", option: str = "ssl.principal.mapping.rules") -> None:
        """Raises ``ConfigError`` for rules that cannot be read."""
        self._text = text
        self._rules = _parse(text, option)
        self._known: OrderedDict[str, str] = OrderedDict()

    def name_for(self, distinguished_name: str) -> str:
        """The name of a client with this certificate; ``NoRuleAppliesError`` if it is to be refused."""
        known = self._known.get(distinguished_name)
        if known is not None:
            return known
        for rule in self._rules:
            name = rule.apply(distinguished_name)
            if name is not None:
                self._known[distinguished_name] = name
                while len(self._known) > _MAX_KNOWN:
                    self._known.popitem(last=False)
                return name
        raise NoRuleAppliesError(f"no rule of {self._text} applies to {distinguished_name}")


def _parse(text: str, option: str) -> list[_Rule]:
    rules: list[_Rule] = []
    pos = 0
    while text[pos:].strip():
        found = _RULE.match(text, pos)
        if found is None:
            raise ConfigError(
                f"{option} has a rule that cannot be read at {text[pos:].strip()!r}: write DEFAULT or "
                "RULE:pattern/replacement/, with L or U at its end, and divide rules by commas"
            )
        pos = found.end()
        rules.append(_Rule(None) if found["default"] else _rule(found, option))
    return rules or [_Rule(None)]


def _rule(found: re.Match[str], option: str) -> _Rule:
    try:
        pattern = re.compile(_NAMED_GROUP.sub("(?P<", found["pattern"]))
    except re.error as error:
        raise ConfigError(f"{option} has the pattern {found['pattern']!r}, which is none: {error}") from error
    for reference in _REFERENCE.finditer(found["replacement"]):
        if reference["name"] is not None and reference["name"] not in pattern.groupindex:
            raise ConfigError(
                f"{option} has the replacement {found['replacement']!r}, whose group {reference['name']} is "
                "not in its pattern"
            )
    try:
        linear = LinearRegex(found["pattern"])
    except RegexFault:
        linear = None
    return _Rule(pattern, found["replacement"], found["case"], linear)
