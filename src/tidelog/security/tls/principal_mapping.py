"""``ssl.principal.mapping.rules``: from the name in a client's certificate to the name it is known by.

Rules stand in a list, divided by commas: ``DEFAULT`` takes the distinguished name as it is, and
``RULE:pattern/replacement/`` takes the replacement where the pattern matches the whole name, with ``L`` or
``U`` at the end in lower or upper case. The first rule that matches decides; where none does, the client is
refused.

Patterns are Java's. A reference to a group that the pattern does not have stays as it is written, if it has
others; where it has none, Kafka would refuse every client that the rule matches, and the start is refused.

Whoever has a certificate chooses what is matched, and Python's ``re`` may try for ever (``(a+)+b``) while
nothing else runs: patterns are matched in bounded time (``linear_regex``), and names with control characters
by no rule. A pattern that needs more than that, references to groups say, stops the start; a name for which
a rule would take more than ``MAX_STEPS`` is refused. Names that were mapped are kept.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass

from tidelog.errors import ConfigError
from tidelog.regex.linear_regex import Found, LinearRegex, RegexFault, Steps, TooManyStepsError

MAX_STEPS = 250_000
"""A tenth of a second, about; names of a hundred characters take a few thousand."""
_MAX_INSTRUCTIONS = 2000

_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,|$)"
)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_MAX_KNOWN = 1000
_REFERENCE = re.compile(
    r"\\(?P<escaped>.)|\$(?P<number>[0-9]+)|\$\{(?P<name>[A-Za-z][A-Za-z0-9]*)\}|(?P<lost>\$)"
)


class NoRuleAppliesError(ValueError):
    """No rule has a name for this client."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: LinearRegex | None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """What this rule makes of a name, if it does; raises ``TooManyStepsError``."""
        if self.pattern is None:
            return name
        steps = Steps(MAX_STEPS)
        if _CONTROL.search(name) or self.pattern.fullmatch(name, steps) is None:
            return None
        mapped = self._replaced(self.pattern, name, steps)
        if self.case:
            return mapped.lower() if self.case == "L" else mapped.upper()
        return mapped

    def _replaced(self, pattern: LinearRegex, name: str, steps: Steps) -> str:
        """Every place at which the pattern matches, replaced."""
        written: list[str] = []
        pos = search_from = 0
        while search_from <= len(name) and (found := pattern.search(name, search_from, steps)) is not None:
            written += (name[pos : found.start], self._expanded(pattern, found))
            pos = found.end
            search_from = found.end + (found.end == found.start)
        return "".join((*written, name[pos:]))

    def _expanded(self, pattern: LinearRegex, found: Found) -> str:
        groups = found.groups

        def value(reference: re.Match[str]) -> str:
            if reference["escaped"] is not None:
                return reference["escaped"]
            if reference["name"] is not None:
                return groups[pattern.group_names[reference["name"]]] or ""
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
            try:
                name = rule.apply(distinguished_name)
            except TooManyStepsError as error:
                raise NoRuleAppliesError(
                    f"a rule of {self._text} takes too long for a name of {len(distinguished_name)} "
                    f"characters, {distinguished_name[:100]}"
                ) from error
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
        pattern = LinearRegex(found["pattern"], _MAX_INSTRUCTIONS)
    except RegexFault as fault:
        raise ConfigError(
            f"{option} has the rule {found[0].strip(' ,')!r}, whose pattern cannot be used: {fault}"
        ) from fault
    for reference in _REFERENCE.finditer(found["replacement"]):
        number, name = reference["number"], reference["name"]
        if (
            reference["lost"]
            or (number is not None and not pattern.group_count and not number.startswith("0"))
            or (name is not None and name not in pattern.group_names)
        ):
            raise ConfigError(
                f"{option} has the rule {found[0].strip(' ,')!r}, whose {reference[0]} is no group of its "
                "pattern; write \\$ for the character"
            )
    return _Rule(pattern, found["replacement"], found["case"])
