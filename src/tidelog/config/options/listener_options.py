"""The options of one listener: ``listener.name.<listener>.<option>`` stands over ``<option>``.

Kafka's rule for everything about TLS and SASL. What belongs to one SASL mechanism has its name, too, in
between: ``listener.name.<listener>.<mechanism>.<option>``. All names of listeners and mechanisms are written
in lower case there. ``BrokerConfig.for_listener`` makes these.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.errors import ConfigError
from tidelog.options import BadValueError, ConfigDef, TypedValues

PREFIX = "listener.name."
METRICS = "METRICS"
"""Whose options are those of ``metrics.listeners`` with TLS."""


class ListenerConfig(TypedValues):
    """A broker's options as they are for one listener, or for one mechanism of it."""

    def __init__(
        self,
        options: ConfigDef,
        values: Mapping[str, object],
        raw: Mapping[str, str],
        listener: str,
        mechanism: str | None = None,
    ) -> None:
        """``values`` are the typed ones of the broker, ``raw`` everything that was set, as text.

        Raises :class:`ConfigError` for an entry of this listener that its option refuses.
        """
        self.listener = listener
        self._values = dict(values)
        self._prefixes = [f"{PREFIX}{listener.lower()}."]
        if mechanism is not None:
            self._prefixes.append(f"{self._prefixes[0]}{mechanism.lower()}.")
        self._set_here: dict[str, str] = {}
        for prefix in self._prefixes:
            for name, text in raw.items():
                option = options.get(name[len(prefix) :]) if name.startswith(prefix) else None
                if option is None:
                    continue
                try:
                    self._values[option.name] = option.parse(text)
                except BadValueError as error:
                    raise ConfigError(str(error).replace(option.name, name)) from error
                self._set_here[option.name] = name

    def is_own(self, name: str) -> bool:
        """Whether the option was set for this listener, or this mechanism, and not for all."""
        return name in self._set_here

    def name_of(self, name: str) -> str:
        """The name by which the option's value was set: for sentences about it."""
        return self._set_here.get(name, name)


def bare_names(name: str) -> tuple[str, ...]:
    """What the entry of one listener may be the name of: without the listener, and without a mechanism."""
    if not name.startswith(PREFIX):
        return ()
    # Neither listeners nor mechanisms have a dot in their names.
    parts = name.removeprefix(PREFIX).split(".")
    return tuple(bare for bare in (".".join(parts[1:]), ".".join(parts[2:])) if bare)


def listener_of(name: str) -> str | None:
    """The listener that an entry is for, as it is called elsewhere; ``None`` if it is for all."""
    return name.removeprefix(PREFIX).partition(".")[0].upper() if name.startswith(PREFIX) else None
