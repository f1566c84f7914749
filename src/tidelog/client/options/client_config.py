"""What a user gives a client, read by its option table: a mapping in Kafka's names, keywords or both.

``linger_ms=5`` means ``linger.ms``; keywords win over the mapping. Values may be text (as in a properties
file) or Python's own: numbers, booleans, lists, paths, and functions or objects where an option takes them.
None means "not set". A name that no table knows is refused with the nearest one; one that only Java's
clients need is warned about once, and so are names from before Kafka 0.9, which are translated
(``old_names``).
"""

from __future__ import annotations

import builtins
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog.client.options import admin, consumer, producer
from tidelog.client.options.foreign_names import advice
from tidelog.client.options.old_names import translated
from tidelog.client.options.rules import ADMIN_RULES, CONSUMER_RULES, PRODUCER_RULES, Rule
from tidelog.client.options.unsupported import UNSUPPORTED_NAMES
from tidelog.errors import ConfigError
from tidelog.options import BadValueError, ConfigDef, Option, OptionType, TypedValues, grouped, suggest

logger = logging.getLogger(__name__)
_warned: set[str] = set()


@dataclass(frozen=True, slots=True)
class ClientKind:
    """One kind of client: its options and the rules between them."""

    name: str
    options: ConfigDef
    rules: tuple[Rule, ...]

    def __str__(self) -> str:
        return f"an {self.name}" if self.name[0] in "aeiou" else f"a {self.name}"


def _table(subjects: Mapping[str, Iterable[Option]]) -> ConfigDef:
    return ConfigDef(grouped(subjects))


PRODUCER = ClientKind("producer", _table(producer.SUBJECTS), PRODUCER_RULES)
CONSUMER = ClientKind("consumer", _table(consumer.SUBJECTS), CONSUMER_RULES)
ADMIN = ClientKind("admin client", _table(admin.SUBJECTS), ADMIN_RULES)
_KINDS = (PRODUCER, CONSUMER, ADMIN)


class ClientConfig(TypedValues, Mapping[str, object]):
    """The typed values of all options of one client, by Kafka's names."""

    def __init__(self, kind: ClientKind, values: Mapping[str, object], given: frozenset[str]) -> None:
        self.kind = kind
        self.given = given
        """The options that the user has set."""
        self._values = dict(values)

    @classmethod
    def parse(
        cls,
        kind: ClientKind,
        options: Mapping[str, object] | None = None,
        /,
        *misplaced: object,
        **keywords: object,
    ) -> ClientConfig:
        """Read and check what the user has set; raises one ``ConfigError`` that names every problem.

        ``misplaced`` is what somebody gave by position who is used to another client.
        """
        if misplaced or not isinstance(options, Mapping | None):
            raise ConfigError(_misplaced(kind, [options, *misplaced]))
        raw = _named(kind, options or {}) | _named(kind, keywords)
        values: dict[str, Any] = kind.options.defaults()
        problems: list[str] = []
        for name, value in raw.items():
            try:
                values[name] = _read(kind.options[name], value)
            except BadValueError as error:
                problems.append(_explain(kind.options[name], error, value))
        if problems:
            raise ConfigError("; ".join(problems))
        given = frozenset(raw)
        for rule in kind.rules:
            rule(values, given)
        return cls(kind, values, given)

    def __getitem__(self, name: builtins.str) -> object:
        return self._values[name]

    def __iter__(self) -> Iterator[builtins.str]:
        return iter(self._values)

    def __len__(self) -> builtins.int:
        return len(self._values)

    def __repr__(self) -> builtins.str:
        shown = ", ".join(f"{name}={self._shown(name)}" for name in sorted(self.given))
        return f"<{self.kind.name} options: {shown or 'all defaults'}>"

    def object(self, name: builtins.str) -> Any:
        """An option that takes a function, a class or an object: as it was given."""
        return self._values[name]

    def _shown(self, name: builtins.str) -> builtins.str:
        return "[hidden]" if self.kind.options[name].sensitive else repr(self._values[name])


def _named(kind: ClientKind, options: Mapping[str, object]) -> dict[str, object]:
    """What is set, by Kafka's names; unknown names raise."""
    found: dict[str, object] = {}
    unknown: list[str] = []
    for written, value in translated(options, kind.options, kind.name).items():
        if not isinstance(written, str):
            unknown.append(f"an option's name is a str, got {written!r}")
            continue
        name = written if written in kind.options else written.replace("_", ".")
        if name in kind.options:
            if value is not None:
                found[name] = value
        elif name in UNSUPPORTED_NAMES:
            _warn_once(name)
        else:
            unknown.append(_unknown(kind, written))
    if unknown:
        raise ConfigError("; ".join(unknown))
    return found


def _unknown(kind: ClientKind, written: str) -> str:
    name = written.replace("_", ".")
    for other in _KINDS:
        if name in other.options:
            return f"{written} is an option of {other}, not of {kind}"
    foreign = advice(written)
    if foreign is not None:
        return f"{kind} has no option {written}: {foreign}"
    near = suggest(name, kind.options)
    if near is not None and "_" in written:
        near = near.replace(".", "_")
    where = "docs/reference/client-configuration.md lists them"
    return f"{kind} has no option {written}; " + (f"did you mean {near}?" if near else where)


def _misplaced(kind: ClientKind, given: Sequence[object]) -> str:
    """What to write instead of topics or addresses in the place of options."""
    shown = ", ".join(map(repr, given))
    how = f"{kind} takes options as a mapping or by their names"
    if not all(isinstance(each, str) for each in given):
        return f"{how}, not {shown}: write bootstrap_servers='host:9092', or {{'bootstrap.servers': …}}"
    if kind is CONSUMER and not any(":" in str(each) for each in given):
        return f"{how}, and topics by `subscribe`: make it without {shown}, then `subscribe([{shown}])`"
    return f"{how}: write bootstrap_servers={given[0]!r} if {shown} is where the brokers are"


def _warn_once(name: str) -> None:
    if name not in _warned:
        _warned.add(name)
        logger.warning("option %s has no effect here: %s", name, UNSUPPORTED_NAMES[name])


def _read(option: Option, value: object) -> object:
    if option.type is OptionType.CLASS:
        return value
    if option.type is OptionType.LIST and not isinstance(value, str):
        return _read_list(option, value)
    if isinstance(value, bool):
        return option.parse("true" if value else "false")
    if isinstance(value, int | float):
        return option.parse(str(value))
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        raise BadValueError(
            option.name, f"{option.name} cannot be a {type(value).__name__}: give it as {_article(option)}"
        )
    return option.parse(value)


def _read_list(option: Option, value: object) -> tuple[Any, ...]:
    items = tuple(value) if isinstance(value, Iterable) and not isinstance(value, type) else (value,)
    if option.name == "bootstrap.servers" and (
        isinstance(value, Mapping) or not all(isinstance(item, str) for item in items)
    ):
        raise BadValueError(option.name, f"{option.name} takes 'host:port' or a list of them, not {value!r}")
    if option.check is not None and all(isinstance(item, str) for item in items):
        items = tuple(dict.fromkeys(items))
        option.check(option.name, items)
    return items


def _article(option: Option) -> str:
    return {
        "INT": "an int",
        "LONG": "an int",
        "SHORT": "an int",
        "DOUBLE": "a float",
        "BOOLEAN": "a bool",
    }.get(option.type.name, "a str")


def _explain(option: Option, error: BadValueError, value: object) -> str:
    text = "Invalid value for configuration " + option.name if option.sensitive else str(error).rstrip(".")
    allowed = option.bounds()
    return f"{text} (allowed: {allowed})" if allowed and allowed not in text else text
