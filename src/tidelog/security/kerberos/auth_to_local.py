"""``sasl.kerberos.principal.to.local.rules``: from a Kerberos principal to the name that a user is known by.

A principal is ``primary@REALM`` or ``primary/instance@REALM``. Rules are tried in order; the first that
applies decides, and where none does the login fails:

    DEFAULT                               the primary, if the realm is the default one of krb5.conf
    RULE:[n:format](match)s/from/to/g/L   of principals with n parts: format with $0 for the realm, $1 for the
                                          primary, $2 for the instance; if match, which may be left out,
                                          matches all of that, from is replaced by to, once or, with g,
                                          everywhere; L and U make it lower or upper case

The grammar is that of Kafka 4 (KerberosShortNamer), and so are its consequences: rules hold no commas, which
divide them, and ``match`` holds no parentheses. A name that has a ``/`` or an ``@`` left is refused, whatever
other rules say.

Stricter than Kafka's: names with escaped or unprintable characters, empty ones and those of more than
``MAX_NAME`` characters are nobody's, and a reference to a part or a group that is not there stops the start.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.errors import ConfigError
from tidelog.regex.linear_regex import Found, LinearRegex, RegexFault, Steps, TooManyStepsError

MAX_NAME = 512
MAX_STEPS = 250_000

_RULE = re.compile(
    r"DEFAULT|RULE:\[(?P<parts>[0-9]+):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<from>[^/]*)/(?P<to>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_PRINCIPAL = re.compile(r"(?P<primary>[^/@]*)(?:/(?P<instance>[^/@]*))?@(?P<realm>[^/@]*)")
_PARAMETER = re.compile(r"\$(?P<number>[0-9]*)")
_REFERENCE = re.compile(
    r"\\(?P<escaped>.)|\$(?P<number>[0-9]+)|\$\{(?P<name>[A-Za-z][A-Za-z0-9]*)\}|(?P<lost>[$\\])", re.DOTALL
)
_GRAMMAR = (
    "write DEFAULT or RULE:[n:format](match)s/from/to/g, with /L or /U at its end, and divide rules by commas"
)


class NoRuleAppliesError(ValueError):
    """Nobody is known by this principal; the text says why."""


@dataclass(frozen=True, slots=True)
class _Rule:
    text: str
    parts: int
    format: str
    match: LinearRegex | None
    pattern: LinearRegex | None
    replacement: str
    everywhere: bool
    case: str

    def apply(self, parameters: Sequence[str]) -> str | None:
        """The name that this rule has for a principal, whose realm comes first.

        Raises ``NoRuleAppliesError`` where that name may not be or would take too long.
        """
        if len(parameters) - 1 != self.parts:
            return None
        base = _PARAMETER.sub(lambda found: parameters[int(found["number"])], self.format)
        steps = Steps(MAX_STEPS)
        try:
            if self.match is not None and self.match.fullmatch(base, steps) is None:
                return None
            name = base if self.pattern is None else self._replaced(self.pattern, base, steps)
        except TooManyStepsError as error:
            raise NoRuleAppliesError(f"the rule {self.text} takes too long for its principal") from error
        return _in_case(_simple(name, self.text), self.case)

    def _replaced(self, pattern: LinearRegex, base: str, steps: Steps) -> str:
        written: list[str] = []
        pos = search_from = 0
        while search_from <= len(base):
            found = pattern.search(base, search_from, steps)
            if found is None:
                break
            written += (base[pos : found.start], self._expanded(found))
            pos = found.end
            search_from = found.end + (found.end == found.start)
            if not self.everywhere:
                break
        return "".join((*written, base[pos:]))

    def _expanded(self, found: Found) -> str:
        assert self.pattern is not None
        names = self.pattern.group_names

        def value(reference: re.Match[str]) -> str:
            if reference["escaped"] is not None:
                return reference["escaped"]
            if reference["name"] is not None:
                return found.groups[names[reference["name"]]] or ""
            digits = reference["number"]
            length = _group_digits(digits, len(found.groups) - 1)
            return (found.groups[int(digits[:length])] or "") + digits[length:]

        return _REFERENCE.sub(value, self.replacement)


class AuthToLocal:
    """The rules of one listener."""

    def __init__(
        self,
        rules: Sequence[str] = ("DEFAULT",),
        default_realm: str = "",
        option: str = "sasl.kerberos.principal.to.local.rules",
    ) -> None:
        """Raises ``ConfigError`` for rules that cannot be read."""
        self._default_realm = default_realm
        self._rules = [_parse(each, option) for each in rules]

    def name_for(self, principal: str) -> str:
        """The name of a user; :class:`NoRuleAppliesError` if nobody is known by this principal."""
        if len(principal) > MAX_NAME:
            raise NoRuleAppliesError(f"its principal has more than {MAX_NAME} characters")
        if "\\" in principal or not principal.isprintable():
            raise NoRuleAppliesError(f"its principal {principal!r} has escaped or unprintable characters")
        found = _PRINCIPAL.fullmatch(principal)
        if found is None:
            raise NoRuleAppliesError(f"its principal {principal!r} is not primary/instance@REALM")
        parameters = [found["realm"], found["primary"]]
        if found["instance"] is not None:
            parameters.append(found["instance"])
        for rule in self._rules:
            name = self._default(parameters) if rule is None else rule.apply(parameters)
            if name is not None:
                if not name:
                    raise NoRuleAppliesError(f"the rules leave no name of its principal {principal}")
                return name
        raise NoRuleAppliesError(f"no rule applies to its principal {principal}")

    def _default(self, parameters: Sequence[str]) -> str | None:
        return parameters[1] if parameters[0] == self._default_realm and self._default_realm else None


def _simple(name: str, rule: str) -> str:
    if "/" in name or "@" in name:
        raise NoRuleAppliesError(
            f"the rule {rule} makes {name!r} of its principal, in which / and @ must not be"
        )
    return name


def _in_case(name: str, case: str) -> str:
    if not case:
        return name
    return name.lower() if case == "L" else name.upper()


def _parse(text: str, option: str) -> _Rule | None:
    """One rule; ``None`` stands for DEFAULT."""
    found = _RULE.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"{option} has the rule {text!r}, which cannot be read: {_GRAMMAR}")
    if found["parts"] is None:
        return None
    parts = int(found["parts"]) if len(found["parts"]) < 10 else MAX_NAME
    for reference in _PARAMETER.finditer(found["format"]):
        digits = reference["number"]
        if not digits or len(digits) > 9 or int(digits) > parts:
            raise ConfigError(
                f"{option} has the rule {text!r}, whose {reference[0]} is no part of a name with {parts}: "
                "$0 is the realm, $1 the first part"
            )
    pattern = _regex(found["from"], text, option)
    if pattern is not None:
        _check_references(pattern, found["to"], text, option)
    return _Rule(
        text.strip(),
        parts,
        found["format"],
        _regex(found["match"], text, option),
        pattern,
        found["to"] or "",
        found["all"] is not None,
        found["case"] or "",
    )


def _regex(pattern: str | None, rule: str, option: str) -> LinearRegex | None:
    if pattern is None:
        return None
    try:
        return LinearRegex(pattern)
    except RegexFault as fault:
        raise ConfigError(
            f"{option} has the rule {rule!r}, whose pattern {pattern!r} cannot be used: {fault}"
        ) from fault


def _check_references(pattern: LinearRegex, replacement: str, rule: str, option: str) -> None:
    for reference in _REFERENCE.finditer(replacement):
        number, name = reference["number"], reference["name"]
        if (
            reference["lost"]
            or (number is not None and not _group_digits(number, pattern.group_count))
            or (name is not None and name not in pattern.group_names)
        ):
            raise ConfigError(
                f"{option} has the rule {rule!r}, whose replacement {replacement!r} names no group of its "
                f"pattern with {reference[0]!r}; write \\$ for the character"
            )


def _group_digits(digits: str, groups: int) -> int:
    """As many digits as name a group are its number, as in Java; what follows them is text. 0 for none."""
    if int(digits[0]) > groups:
        return 0
    length = 1
    while length < len(digits) and int(digits[: length + 1]) <= groups:
        length += 1
    return length
