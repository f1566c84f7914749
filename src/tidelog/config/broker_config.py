"""One broker's configuration: the properties file, typed and checked, with dynamic changes laid over it.

Built once at start by ``cli/start`` (or a test); everything else reads it through typed accessors.
Precedence, lowest first: default, properties file and command line (static), cluster-wide dynamic, this
broker's dynamic. Invariant: every value a reader can see has passed its own bounds and the rules over
several options, and a change that would break one leaves everything as it was.

``dynamic_config`` is the only caller of :meth:`BrokerConfig.apply_dynamic`.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.config.broker_rules import broken_rules, listener_rules
from tidelog.config.listeners import Listener, parse_listeners, parse_map, parse_protocol_map
from tidelog.config.misspelt_options import misspelt_protection
from tidelog.config.options.broker_options import BROKER_OPTIONS, option_of
from tidelog.config.options.listener_options import METRICS, ListenerConfig, listener_of
from tidelog.config.options.topic_options import resolve
from tidelog.config.options.unsupported_options import KNOWN_UNSUPPORTED, is_unsupported
from tidelog.custom_class import is_custom_class
from tidelog.errors import ConfigError
from tidelog.options import TypedValues, render_value
from tidelog.properties import read_properties

if TYPE_CHECKING:
    from tidelog.config.sasl_settings import BrokerLogin, SaslSettings

_CUSTOM_CLASSES = ("authorizer.class.name", "metric.reporters")
"""Options that may name Python classes, which receive all options."""


class BrokerConfig(TypedValues):
    """Typed, checked broker options; ``int``, ``str`` and the like read one by name."""

    def __init__(self, raw: Mapping[str, str] | None = None) -> None:
        """Parse and check; raises one :class:`ConfigError` that names everything wrong."""
        self.raw: dict[str, str] = _with_both_ids(raw or {})
        """What was set in the file and on the command line, as text, with unknown names too."""
        self._values = BROKER_OPTIONS.parse(self.raw)
        self._dynamic: dict[str, str] = {}
        self._check(self._values, self.raw)
        self.node_id = self.int("node.id")
        protocols = parse_protocol_map(self.str("listener.security.protocol.map"))
        controller_names = {name.upper() for name in self.list("controller.listener.names")}
        self.listeners, self.advertised_listeners = _broker_listeners(
            self._values, protocols, controller_names
        )
        self.inter_broker_listener_name = (
            self.optional_str("inter.broker.listener.name") or self.str("security.inter.broker.protocol")
        ).upper()
        control_plane = self.optional_str("control.plane.listener.name")
        self.control_plane_listener_name = None if control_plane is None else control_plane.upper()
        listener_rules(
            self.listeners,
            self.advertised_listeners,
            self.inter_broker_listener_name,
            self.control_plane_listener_name,
        )
        self._check_spelling({*protocols, *controller_names})
        self._check_sasl(self._values, self.raw)
        self._topic_defaults = resolve(self._values)

    @classmethod
    def load(
        cls, path: builtins.str | Path | None, overrides: Mapping[builtins.str, builtins.str] | None = None
    ) -> tuple[BrokerConfig, builtins.list[builtins.str]]:
        """Read a properties file (or none), lay ``overrides`` over it, and say what has no effect."""
        raw = read_properties(path) if path is not None else {}
        raw.update(overrides or {})
        return cls(raw), warnings_for(raw)

    @property
    def without_passwords(self) -> dict[builtins.str, builtins.str]:
        """What was set, as text and with unknown names, but no passwords: for custom classes."""
        return {
            name: text
            for name, text in self.raw.items()
            if (known := option_of(name)) is None or not known.sensitive
        }

    def get(self, name: builtins.str) -> object:
        """The typed value of any honoured option."""
        return self._values[name]

    def values(self) -> dict[builtins.str, object]:
        """The typed values of all honoured options."""
        return dict(self._values)

    def for_listener(self, listener: builtins.str, mechanism: builtins.str | None = None) -> ListenerConfig:
        """The options as they are now for one listener and, where one is named, one SASL mechanism of it."""
        raw = {**self.raw, **self._dynamic}
        return ListenerConfig(BROKER_OPTIONS, self._values, raw, listener, mechanism)

    def preview_for_listener(
        self, listener: builtins.str, this_broker: Mapping[builtins.str, builtins.str]
    ) -> ListenerConfig:
        """The options as they would be for one listener with other dynamic entries of this broker."""
        raw = {**self.raw, **this_broker}
        return ListenerConfig(BROKER_OPTIONS, BROKER_OPTIONS.parse(raw), raw, listener)

    @property
    def sasl(self) -> dict[builtins.str, SaslSettings]:
        """The listeners on which clients log in, by name, as they are set now."""
        if not any(each.uses_sasl for each in self.listeners):
            return {}
        from tidelog.config.sasl_settings import sasl_settings

        return sasl_settings(self.listeners, self.for_listener)

    def broker_login(self, listener: builtins.str) -> BrokerLogin | None:
        """How this broker logs in at others on the listener with this name; ``None`` if it need not."""
        found = next(each for each in self.listeners if each.name == listener)
        if not found.uses_sasl:
            return None
        from tidelog.config.sasl_settings import broker_login

        return broker_login(self.str("sasl.mechanism.inter.broker.protocol"), found, self.sasl)

    @property
    def rack(self) -> builtins.str | None:
        """``broker.rack``."""
        return self.optional_str("broker.rack")

    @property
    def log_dirs(self) -> tuple[Path, ...]:
        """The log directories, absolute, in the order given."""
        name = "log.dir" if self._values["log.dirs"] is None else "log.dirs"
        return tuple(Path(directory).absolute() for directory in self.list(name))

    @property
    def metadata_log_dir(self) -> Path | None:
        """Where Kafka had its metadata log, absolute, if not in a log directory."""
        directory = self.optional_str("metadata.log.dir")
        return None if directory is None else Path(directory).absolute()

    @property
    def max_connections_per_ip_overrides(self) -> dict[builtins.str, builtins.int]:
        """``max.connections.per.ip.overrides`` as host → count."""
        name = "max.connections.per.ip.overrides"
        return {host: int(count) for host, count in parse_map(name, self.str(name)).items()}

    def topic_defaults(self) -> dict[builtins.str, object]:
        """What each topic option is on this broker unless the topic says otherwise; keys are topic names."""
        return dict(self._topic_defaults)

    def apply_dynamic(
        self,
        cluster_wide: Mapping[builtins.str, builtins.str],
        this_broker: Mapping[builtins.str, builtins.str],
    ) -> set[builtins.str]:
        """Lay dynamic entries over the static ones; returns the names whose effective value changed.

        Raises :class:`ConfigError`, and changes nothing, if the outcome would break a rule.
        """
        values = self.preview_dynamic(cluster_wide, this_broker)
        changed = {name for name, value in values.items() if value != self._values[name]}
        before, now = self._dynamic, {**cluster_wide, **this_broker}
        # Options of single listeners have no value of their own in the table.
        changed |= {
            name
            for name in before.keys() | now.keys()
            if before.get(name) != now.get(name) and listener_of(name) and option_of(name)
        }
        self._values = values
        self._dynamic = now
        self._topic_defaults = resolve(values)
        return changed

    def preview_dynamic(
        self,
        cluster_wide: Mapping[builtins.str, builtins.str],
        this_broker: Mapping[builtins.str, builtins.str],
    ) -> dict[builtins.str, object]:
        """The checked values that :meth:`apply_dynamic` would install."""
        raw = {**self.raw, **cluster_wide, **this_broker}
        values = BROKER_OPTIONS.parse(raw)
        self._check(values, raw)
        self._check_sasl(values, raw)
        return values

    def render(self, name: builtins.str) -> builtins.str | None:
        """An option's effective value as Kafka prints it."""
        return render_value(self._values[name])

    def _check_sasl(
        self, values: Mapping[builtins.str, object], raw: Mapping[builtins.str, builtins.str]
    ) -> None:
        if not any(each.uses_sasl for each in self.listeners):
            return
        # Not before: a broker on which nobody logs in starts without all this.
        from tidelog.config.sasl_settings import broker_login, sasl_settings

        def for_listener(listener: builtins.str, mechanism: builtins.str | None) -> ListenerConfig:
            return ListenerConfig(BROKER_OPTIONS, values, raw, listener, mechanism)

        settings = sasl_settings(self.listeners, for_listener)
        if values["zookeeper.connect"] is not None:
            # A broker alone has nobody to log in at.
            for listener in self.listeners:
                between = (self.inter_broker_listener_name, self.control_plane_listener_name)
                if listener.name in between and listener.uses_sasl:
                    broker_login(str(values["sasl.mechanism.inter.broker.protocol"]), listener, settings)

    def _check_spelling(self, more: builtins.set[builtins.str]) -> None:
        """``more`` are names of listeners that this broker does not have and others may."""
        listeners = {each.name.upper() for each in (*self.listeners, *self.advertised_listeners)} | more
        listeners.add(METRICS)
        if self.control_plane_listener_name is not None:
            listeners.add(self.control_plane_listener_name)
        misspelt = [*misspelt_protection(self.raw, listeners)]
        if misspelt:
            raise ConfigError("; ".join(misspelt))

    @staticmethod
    def _check(values: Mapping[builtins.str, object], raw: Mapping[builtins.str, builtins.str]) -> None:
        broken = broken_rules(values, raw)
        if broken:
            raise ConfigError("; ".join(broken))


def _with_both_ids(raw: Mapping[str, str]) -> dict[str, str]:
    """``node.id`` and ``broker.id`` stand for each other; -1 asked old brokers to make an id up."""
    both = dict(raw)
    if "broker.id" in both and "node.id" not in both and both["broker.id"].strip() != "-1":
        both["node.id"] = both["broker.id"]
    elif "node.id" in both:
        both.setdefault("broker.id", both["node.id"])
    return both


def _broker_listeners(
    values: Mapping[str, object], protocols: Mapping[str, str], controller_names: set[str]
) -> tuple[tuple[Listener, ...], tuple[Listener, ...]]:
    """What to bind and what to advertise, without the listeners of Kafka's controller quorum."""
    known = {**dict.fromkeys(controller_names, "PLAINTEXT"), **protocols}
    listeners = parse_listeners("listeners", _items(values["listeners"]), known)
    told = values["advertised.listeners"]
    advertised = listeners if told is None else parse_listeners("advertised.listeners", _items(told), known)
    return (
        tuple(each for each in listeners if each.name not in controller_names),
        tuple(each for each in advertised if each.name not in controller_names),
    )


def _items(value: object) -> tuple[str, ...]:
    assert isinstance(value, tuple)
    return value


def warnings_for(raw: Mapping[str, str]) -> list[str]:
    """What to tell the operator about options that have no effect: at most one line each for two kinds."""
    idle = sorted(name for name in raw if option_of(name) is None and is_unsupported(name))
    unknown = sorted(name for name in raw if option_of(name) is None and not is_unsupported(name))
    lines = []
    if idle:
        lines.append(f"These options of Kafka's have no effect in this release: {', '.join(idle)}")
    if unknown:
        custom = any(is_custom_class(raw.get(name, "")) for name in _CUSTOM_CLASSES)
        ignored = "ignored, except by custom classes" if custom else "ignored"
        lines.append(f"Unknown options are {ignored}: " + ", ".join(map(_with_suggestion, unknown)))
    nobody = sorted(name for name in raw if option_of(name) is not None and _is_for_nobody(name, raw))
    if nobody:
        lines.append(f"There is no listener of the name that these options have: {', '.join(nobody)}")
    return lines


def _is_for_nobody(name: str, raw: Mapping[str, str]) -> bool:
    listener = listener_of(name)
    listeners = raw.get("listeners", "PLAINTEXT://").upper()
    return listener not in (None, METRICS) and f"{listener}://" not in listeners


def _with_suggestion(name: str) -> str:
    meant = BROKER_OPTIONS.suggest(name, KNOWN_UNSUPPORTED)
    return f"{name} (did you mean {meant}?)" if meant else name
