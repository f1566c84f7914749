from __future__ import annotations

import pytest

from tidelog.config.options.listener_options import ListenerConfig
from tidelog.errors import ConfigError
from tidelog.options import ConfigDef, option

OPTIONS = ConfigDef(
    [
        option("ssl.client.auth", "string", "none", "a"),
        option("sasl.jaas.config", "password", None, "b"),
        option("max.reauth.ms", "long", 0, "c"),
    ]
)


def config_of(raw: dict[str, str], listener: str = "OUTSIDE", mechanism: str | None = None) -> ListenerConfig:
    return ListenerConfig(OPTIONS, OPTIONS.parse(raw), raw, listener, mechanism)


def test_what_is_set_for_a_listener_stands_over_what_is_set_for_all() -> None:
    raw = {"ssl.client.auth": "requested", "listener.name.outside.ssl.client.auth": "required"}
    assert config_of(raw).str("ssl.client.auth") == "required"
    assert config_of(raw).is_own("ssl.client.auth")
    assert config_of(raw).name_of("ssl.client.auth") == "listener.name.outside.ssl.client.auth"
    assert config_of(raw, "INSIDE").str("ssl.client.auth") == "requested"
    assert not config_of(raw, "INSIDE").is_own("ssl.client.auth")
    assert config_of({}).str("ssl.client.auth") == "none"


def test_what_is_set_for_a_mechanism_stands_over_both() -> None:
    raw = {
        "sasl.jaas.config": "all",
        "listener.name.outside.sasl.jaas.config": "listener",
        "listener.name.outside.scram-sha-256.sasl.jaas.config": "scram",
    }
    assert config_of(raw, mechanism="SCRAM-SHA-256").str("sasl.jaas.config") == "scram"
    assert config_of(raw, mechanism="PLAIN").str("sasl.jaas.config") == "listener"
    assert config_of(raw, "INSIDE", "PLAIN").str("sasl.jaas.config") == "all"


def test_a_value_that_the_option_refuses_is_named_with_its_listener() -> None:
    with pytest.raises(ConfigError, match=r"listener\.name\.outside\.max\.reauth\.ms"):
        config_of({"listener.name.outside.max.reauth.ms": "soon"})
