"""The one configuration primitive: an option declared once, on one line, and read everywhere from there.

An :class:`Option` knows its name, type, default, bounds, importance, documentation, whether it may change
while the broker runs, and how forms show it: group, order, display name and whether it must be set. A
:class:`ConfigDef` is an ordered table of them that turns text into typed values, and :class:`TypedValues`
hands them out. Everything else about configuration (files, precedence, dynamic changes, the reference page,
the console's forms) is built on these; the tables themselves are in ``config/options/broker_options``,
``config/options/topic_options`` and ``client/options``.

Invariant: text is read by Kafka's rules. Numbers and strings are trimmed, integers are plain decimal in
the range of their Java type, booleans are ``true`` or ``false`` in any case, a list is split at commas
and trimmed, and a missing value is ``None`` (the four letters ``null`` mean nothing special). A refusal
has Kafka's wording, because clients show it to people and tests compare it.

Lists are tuples once parsed, so that a default can be shared.
"""

from __future__ import annotations

import builtins
import enum
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from tidelog.errors import ConfigError

Dynamic = Literal["read-only", "per-broker", "cluster-wide"]
Importance = Literal["high", "medium", "low"]

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEX_DOUBLE = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_NAMED_DOUBLES = {sign + name: float(sign + name) for sign in ("", "+", "-") for name in ("NaN", "Infinity")}
_COMMA = re.compile(r"\s*,\s*")

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
MAX_DOUBLE = 1.7976931348623157e308


class OptionType(enum.IntEnum):
    """What an option's text is read as; the number is the one DescribeConfigs sends."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


TypeName = Literal["boolean", "string", "int", "short", "long", "double", "list", "class", "password"]

_WHOLE_NUMBER_BITS = {OptionType.SHORT: 15, OptionType.INT: 31, OptionType.LONG: 63}


class BadValueError(ConfigError):
    """One value that one option refuses; the text is Kafka's."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def invalid(name: str, value: object, why: str) -> BadValueError:
    """Kafka's sentence for a refused value."""
    shown = "null" if value is None else value
    if isinstance(value, tuple):
        shown = f"[{', '.join(value)}]"
    elif isinstance(value, bool):
        shown = str(value).lower()
    elif isinstance(value, float):
        shown = double_to_text(value)
    return BadValueError(name, f"Invalid value {shown} for configuration {name}: {why}")


class Check:
    """A rule that a typed value must keep; ``describe`` is what the reference page prints."""

    def __init__(
        self,
        describe: str,
        refuse: Callable[[str, object], None],
        *,
        drops_repetitions: bool = False,
        choices: tuple[str, ...] = (),
    ) -> None:
        self.describe = describe
        self.choices = choices
        """The only words that are allowed, in every accepted spelling; empty where others are, too."""
        self.drops_repetitions = drops_repetitions
        """Whether a list's repeated items are left out before it is looked at."""
        self._refuse = refuse

    def __call__(self, name: str, value: object) -> None:
        """Raise :class:`BadValueError` unless ``value`` keeps the rule."""
        self._refuse(name, value)


def _number(name: str, value: object) -> int | float:
    if value is None:
        raise invalid(name, None, "Value must be non-null")
    assert isinstance(value, int | float)
    return value


def at_least(low: float) -> Check:
    """A number that is not smaller than ``low``."""
    return between(low, None)


def between(low: float, high: float | None) -> Check:
    """A number within bounds, both included."""

    def refuse(name: str, value: object) -> None:
        number = _number(name, value)
        if number < low:
            raise invalid(name, value, f"Value must be at least {low}")
        if high is not None and number > high:
            raise invalid(name, value, f"Value must be no more than {high}")

    return Check(f"at least {low}" if high is None else f"{low} to {high}", refuse)


def between_or(low: int, high: int, special: int) -> Check:
    """A number within bounds, or one that stands for something else."""

    def refuse(name: str, value: object) -> None:
        number = _number(name, value)
        if number != special and not low <= number <= high:
            raise invalid(name, value, f"Value must be between {low} and {high} or equal to {special}")

    return Check(f"{low} to {high}, or {special}", refuse)


def one_of(*allowed: str) -> Check:
    """One of a few words, spelt exactly."""

    def refuse(name: str, value: object) -> None:
        if value not in allowed:
            raise invalid(name, value, f"String must be one of: {', '.join(allowed)}")

    return Check(f"one of {', '.join(allowed)}", refuse, choices=allowed)


def distinct_items(*, of: tuple[str, ...] = (), empty_ok: bool = True, null_ok: bool = False) -> Check:
    """A list without empty items, where asked with at least one, of a few words only; none counts twice."""

    def refuse(name: str, value: object) -> None:
        if value is None:
            if null_ok:
                return
            raise BadValueError(name, f"Configuration '{name}' values must not be null.")
        assert isinstance(value, tuple)
        if not value and not empty_ok:
            valid = f"[{', '.join(of)}]" if of else "any non-empty value"
            raise BadValueError(
                name, f"Configuration '{name}' must not be empty. Valid values include: {valid}"
            )
        if "" in value:
            raise BadValueError(name, f"Configuration '{name}' values must not be empty.")
        if len(set(value)) != len(value):
            raise BadValueError(name, f"Configuration '{name}' values must not be duplicated.")
        for item in value:
            if of and item not in of:
                raise invalid(name, item, f"String must be one of: {', '.join(of)}")

    words = f"of {', '.join(of)}" if of else "of distinct items"
    return Check(f"{'' if empty_ok else 'non-empty '}list {words}", refuse, drops_repetitions=True)


def matching(describe: str, why: str, accepts: Callable[[str], bool]) -> Check:
    """A string that a function accepts; ``why`` completes Kafka's sentence for one it does not."""

    def refuse(name: str, value: object) -> None:
        if value is None or not accepts(str(value)):
            raise invalid(name, value, why)

    return Check(describe, refuse)


class Option(Struct, frozen=True):
    """One configuration option; made with :func:`option`."""

    name: str
    type: OptionType
    default: object
    doc: str
    check: Check | None
    importance: Importance
    dynamic: Dynamic
    internal: bool
    display_name: str
    """What a form calls it."""
    required: bool
    """Whether it has no default and must be set."""
    group: str = ""
    """The group of options that it is shown with; set by the table that it is in."""
    order: int = 0
    """Its place in that group, from 1."""

    @property
    def sensitive(self) -> bool:
        """Whether its value is never shown."""
        return self.type is OptionType.PASSWORD

    def parse(self, text: str | None) -> object:
        """The typed value of ``text``, checked; raises :class:`BadValueError`."""
        value = parse_text(self.name, self.type, text)
        if self.check is not None:
            if self.check.drops_repetitions and isinstance(value, tuple):
                value = tuple(dict.fromkeys(value))
            self.check(self.name, value)
        return value

    def render(self, value: object) -> str | None:
        """The text that :meth:`parse` would read as ``value``, the way Kafka prints it."""
        return render_value(value)

    def bounds(self) -> str:
        """What values are allowed, for people; empty when anything of the type is."""
        return self.check.describe if self.check is not None else ""


def option(
    name: str,
    type: TypeName,
    default: object,
    doc: str,
    check: Check | None = None,
    *,
    importance: Importance = "medium",
    dynamic: Dynamic = "read-only",
    internal: bool = False,
    display_name: str = "",
    required: bool = False,
) -> Option:
    """Declare an option; its default is a typed value (a tuple for a list) and may break its own bounds."""
    shown = display_name or display_name_of(name)
    return Option(
        name, OptionType[type.upper()], default, doc, check, importance, dynamic, internal, shown, required
    )


_UNITS = {
    "bytes": "bytes",
    "days": "days",
    "hours": "hours",
    "mb": "MB",
    "minutes": "minutes",
    "ms": "ms",
    "seconds": "s",
    "secs": "s",
}
_SPELLINGS = {
    **{each: each.upper() for each in ("acl", "api", "dn", "dns", "id", "io", "ip", "isr", "jaas", "jwks")},
    **{each: each.upper() for each in ("jwt", "lz4", "oauthbearer", "otlp", "sasl", "scram", "ssl", "tls")},
    "acls": "ACLs",
    "ids": "IDs",
    "insync": "in-sync",
    "ips": "IPs",
    "max": "maximum",
    "min": "minimum",
    "num": "number of",
    "url": "URL",
    "zookeeper": "ZooKeeper",
    "zstd": "Zstandard",
}


def display_name_of(name: str) -> str:
    """What a form calls an option of this name: ``log.retention.ms`` is "Log retention (ms)"."""
    words = re.split(r"[._]", name)
    unit = _UNITS.get(words[-1]) if len(words) > 1 else None
    if unit is not None:
        words[-1:] = ["size"] if unit == "bytes" and words[-2] != "size" else []
    elif words[-1] == "num":
        words[-1] = "count"
    shown = " ".join(_SPELLINGS.get(each, each) for each in words)
    shown = shown[:1].upper() + shown[1:]
    return f"{shown} ({unit})" if unit else shown


def grouped(subjects: Mapping[str, Iterable[Option]]) -> Iterator[Option]:
    """Options in the order of their groups, each with its group and its place in there."""
    for group, options in subjects.items():
        for order, each in enumerate(options, 1):
            yield replace(each, group=group, order=order)


def parse_text(name: str, kind: OptionType, text: str | None) -> object:
    """Read ``text`` as a value of a type by Kafka's rules, without checking bounds."""
    if text is None:
        return None
    trimmed = text.strip()
    if kind is OptionType.BOOLEAN:
        lowered = trimmed.lower()
        if lowered not in ("true", "false"):
            raise invalid(name, text, "Expected value to be either true or false")
        return lowered == "true"
    if kind is OptionType.LIST:
        return tuple(_COMMA.split(trimmed)) if trimmed else ()
    if kind is OptionType.DOUBLE:
        return _parse_double(name, trimmed, text)
    bits = _WHOLE_NUMBER_BITS.get(kind)
    if bits is None:
        return trimmed
    if _INTEGER.fullmatch(trimmed):
        number = int(trimmed)
        if -(1 << bits) <= number < 1 << bits:
            return number
    raise invalid(name, text, f"Not a number of type {kind.name}")


def _parse_double(name: str, trimmed: str, text: str) -> float:
    if match := _DOUBLE.fullmatch(trimmed):
        return float(match[1])
    if match := _HEX_DOUBLE.fullmatch(trimmed):
        return float.fromhex(match[1])
    if trimmed in _NAMED_DOUBLES:
        return _NAMED_DOUBLES[trimmed]
    raise invalid(name, text, "Not a number of type DOUBLE")


def render_value(value: object) -> str | None:
    """A typed value as Kafka prints it in DescribeConfigs answers."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return double_to_text(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def double_to_text(value: float) -> str:
    """A double in Java's notation: ``0.5``, ``1.0E7``."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    shortest = repr(value)
    if "e" in shortest:
        digits, _, exponent = shortest.partition("e")
        return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"
    sign = "-" if value < 0 else ""
    whole, _, fraction = shortest.lstrip("-").partition(".")
    if whole != "0":
        mantissa = (whole[1:] + fraction).rstrip("0") or "0"
        return f"{sign}{whole[0]}.{mantissa}E{len(whole) - 1}"
    significant = fraction.lstrip("0")
    return f"{sign}{significant[0]}.{significant[1:] or '0'}E-{len(fraction) - len(significant) + 1}"


class ConfigDef(Mapping[str, Option]):
    """An ordered table of options, by name."""

    def __init__(self, options: Iterable[Option]) -> None:
        self._options: dict[str, Option] = {}
        for each in options:
            if each.name in self._options:
                raise ValueError(f"option {each.name} is declared twice")
            self._options[each.name] = each

    def __getitem__(self, name: str) -> Option:
        return self._options[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def defaults(self) -> dict[str, object]:
        """Every option's default."""
        return {name: each.default for name, each in self._options.items()}

    def parse_known(self, raw: Mapping[str, str | None]) -> dict[str, object]:
        """Typed values of those entries of ``raw`` that this table knows, without defaults.

        Raises one :class:`ConfigError` that names every bad value.
        """
        values: dict[str, object] = {}
        refused: list[BadValueError] = []
        for name, text in raw.items():
            known = self._options.get(name)
            if known is None:
                continue
            try:
                values[name] = known.parse(text)
            except BadValueError as error:
                refused.append(error)
        if refused:
            raise ConfigError("; ".join(self._explain(error) for error in refused))
        return values

    def parse(self, raw: Mapping[str, str | None]) -> dict[str, object]:
        """Typed values of every option: those that ``raw`` gives and the defaults of the others."""
        return self.defaults() | self.parse_known(raw)

    def _explain(self, error: BadValueError) -> str:
        allowed = self._options[error.name].bounds()
        text = str(error).rstrip(".")
        return f"{text} (allowed: {allowed})" if allowed and allowed not in text else text

    def suggest(self, name: str, more: Iterable[str] = ()) -> str | None:
        """The known name that a misspelt one most likely means, or ``None``."""
        return suggest(name, [*self._options, *more])


class TypedValues:
    """Reads values by name as the type that the reader expects; ``BrokerConfig`` and ``ClientConfig`` do.

    An option of another type is a mistake in the program, not in what the user has set: a ``TypeError``.
    """

    _values: dict[str, Any]

    def int(self, name: str) -> builtins.int:
        """A short, int or long option that has a value."""
        value = self._values[name]
        if not isinstance(value, builtins.int) or isinstance(value, builtins.bool):
            raise TypeError(f"{name} is {value!r}, not a whole number")
        return value

    def optional_int(self, name: builtins.str) -> builtins.int | None:
        """A whole-number option that may be unset."""
        return None if self._values[name] is None else self.int(name)

    def float(self, name: builtins.str) -> builtins.float:
        """A double option."""
        value = self._values[name]
        if not isinstance(value, builtins.float):
            raise TypeError(f"{name} is {value!r}, not a double")
        return value

    def bool(self, name: builtins.str) -> builtins.bool:
        """A boolean option."""
        value = self._values[name]
        if not isinstance(value, builtins.bool):
            raise TypeError(f"{name} is {value!r}, not a boolean")
        return value

    def str(self, name: builtins.str) -> builtins.str:
        """A string option that has a value."""
        value = self._values[name]
        if not isinstance(value, builtins.str):
            raise TypeError(f"{name} is {value!r}, not a string")
        return value

    def optional_str(self, name: builtins.str) -> builtins.str | None:
        """A string option that may be unset."""
        return None if self._values[name] is None else self.str(name)

    def optional_list(self, name: builtins.str) -> tuple[builtins.str, ...] | None:
        """A list option that may be unset."""
        return None if self._values[name] is None else self.list(name)

    def list(self, name: builtins.str) -> tuple[Any, ...]:
        """A list option; its items are text, or objects where the option takes them."""
        value = self._values[name]
        if not isinstance(value, tuple):
            raise TypeError(f"{name} is {value!r}, not a list")
        return value


def suggest(name: str, known: Iterable[str]) -> str | None:
    """The entry of ``known`` nearest to a misspelt name, if any is near."""
    wanted = name.strip().lower().replace("_", ".").replace("-", ".")
    import difflib  # only a misspelt option needs it

    near = difflib.get_close_matches(wanted, list(known), n=1, cutoff=0.8)
    return near[0] if near else None
