from __future__ import annotations

from collections.abc import Mapping

import pytest

from tidelog.config.broker_config import BrokerConfig, warnings_for
from tidelog.config.sasl_settings import PasswordLogin, TicketLogin, TokenLogin
from tidelog.errors import ConfigError
from tidelog.security.kerberos.login import KerberosLogin
from tidelog.security.sasl.own_tokens import ClientCredentials

KAFKA = "org.apache.kafka.common.security."
PLAIN_MODULE = f"{KAFKA}plain.PlainLoginModule"
UNSECURED = f"{KAFKA}oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
JAAS = "listener.name.client.plain.sasl.jaas.config"
GSSAPI_JAAS = "listener.name.client.gssapi.sasl.jaas.config"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
KEYTAB = f'{KERBEROS} required useKeyTab=true storeKey=true keyTab="/k" principal="kafka/b1@R";'

SASL = {
    "listeners": "CLIENT://localhost:9092",
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "CLIENT",
}


def with_options(options: Mapping[str, str]) -> BrokerConfig:
    return BrokerConfig({**SASL, **options})


def test_each_mechanism_of_a_listener_has_its_own_options() -> None:
    options = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.client.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        JAAS: f'{PLAIN_MODULE} required user_alice="hush";',
        "connections.max.reauth.ms": "5000",
        "listener.name.client.scram-sha-256.connections.max.reauth.ms": "7000",
    }
    plain, scram = with_options(options).sasl["CLIENT"].mechanisms
    assert (plain.name, scram.name) == ("PLAIN", "SCRAM-SHA-256")
    assert plain.jaas is not None
    assert plain.jaas.options == {"user_alice": "hush"}
    assert plain.config.int("connections.max.reauth.ms") == 5000
    assert scram.config.int("connections.max.reauth.ms") == 7000
    assert warnings_for({**SASL, **options}) == []


def test_a_listener_without_sasl_has_no_settings() -> None:
    assert BrokerConfig({"sasl.enabled.mechanisms": "PLAIN"}).sasl == {}


def test_unsecured_tokens_are_taken_only_when_they_are_asked_for_by_name() -> None:
    handler = "listener.name.client.oauthbearer.sasl.server.callback.handler.class"
    options = {"sasl.enabled.mechanisms": "OAUTHBEARER", handler: UNSECURED}
    assert with_options(options).sasl["CLIENT"].mechanisms[0].takes_unsecured_tokens
    del options[handler]
    with pytest.raises(ConfigError, match="no token could be checked"):
        with_options(options)
    options["sasl.oauthbearer.jwks.endpoint.url"] = "https://host/keys"
    assert not with_options(options).sasl["CLIENT"].mechanisms[0].takes_unsecured_tokens


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "SASL mechanism GSSAPI .*default of sasl.enabled.mechanisms. without a key: set"),
        ({GSSAPI_JAAS: f"{KERBEROS} required useTicketCache=true;"}, "no keytab, by which alone"),
        ({GSSAPI_JAAS: f'{KERBEROS} required useKeyTab=true principal="a@R";'}, "without a keytab"),
        (
            {GSSAPI_JAAS: f'{PLAIN_MODULE} required username="a" password="hush";'},
            f"GSSAPI is that of {KERBEROS}",
        ),
        (
            {GSSAPI_JAAS: KEYTAB, "listener.name.client.sasl.kerberos.principal.to.local.rules": "RULE:x"},
            "listener.name.client.sasl.kerberos.principal.to.local.rules has the rule 'RULE:x'",
        ),
        (
            {
                GSSAPI_JAAS: KEYTAB.replace(";", ' serviceName="other";'),
                "sasl.kerberos.service.name": "kafka",
            },
            "serviceName other",
        ),
        (
            {
                GSSAPI_JAAS: KEYTAB,
                "listener.name.client.gssapi.sasl.server.callback.handler.class": "com.acme.Directory",
            },
            "drop the option$",
        ),
        ({"sasl.enabled.mechanisms": ""}, "nobody could log in"),
        ({"sasl.enabled.mechanisms": "PLAIN,DIGEST-MD5"}, "DIGEST-MD5"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, f"by PLAIN: set {JAAS}"),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                JAAS: f'{PLAIN_MODULE} required username="a" password="hush";',
            },
            "nobody could log in .* by PLAIN",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", JAAS: f'{PLAIN_MODULE} required user_a="hush"'},
            f"{JAAS} cannot",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", JAAS: 'com.acme.Login required user_a="hush";'},
            "com.acme.Login",
        ),
        (
            {
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                "sasl.server.callback.handler.class": "com.acme.Directory",
            },
            "com.acme.Directory, a class of Java",
        ),
        (
            {
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                "connection.failed.authentication.delay.ms": "600000",
            },
            "should always be less than",
        ),
        (
            {"sasl.enabled.mechanisms": "SCRAM-SHA-256", "sasl.login.class": "com.acme.Login"},
            "sasl.login.class",
        ),
    ],
)
def test_what_cannot_be_honoured_stops_the_start_without_showing_secrets(
    options: Mapping[str, str], why: str
) -> None:
    with pytest.raises(ConfigError, match=why) as refusal:
        with_options(options)
    assert "hush" not in str(refusal.value)


def test_kafkas_own_handlers_are_taken_by_their_names() -> None:
    with_options(
        {
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "sasl.server.callback.handler.class": f"{KAFKA}scram.internals.ScramServerCallbackHandler",
        }
    )


def test_a_broker_of_a_cluster_needs_a_name_for_the_others() -> None:
    options = {
        "zookeeper.connect": "localhost:1",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    }
    with pytest.raises(ConfigError, match="has no name to do so"):
        with_options(options)
    with pytest.raises(ConfigError, match=r"must be one of sasl\.enabled\.mechanisms"):
        with_options({**options, "sasl.mechanism.inter.broker.protocol": "PLAIN"})
    module = f"{KAFKA}scram.ScramLoginModule"
    options["listener.name.client.scram-sha-512.sasl.jaas.config"] = (
        f'{module} required username="broker" password="hush";'
    )
    login = with_options(options).broker_login("CLIENT")
    assert login == PasswordLogin("SCRAM-SHA-512", "broker", "hush")
    assert "hush" not in repr(login)


def test_a_broker_of_a_cluster_logs_in_at_the_others_by_its_keytab() -> None:
    options = {
        "zookeeper.connect": "localhost:1",
        "sasl.enabled.mechanisms": "GSSAPI",
        GSSAPI_JAAS: KEYTAB,
        "sasl.kerberos.kinit.cmd": "/usr/bin/kinit",
    }
    with pytest.raises(ConfigError, match=r"by which name: set sasl\.kerberos\.service\.name"):
        with_options(options)
    with pytest.raises(ConfigError, match=r"principal \*, as which"):
        with_options(
            {**options, "sasl.kerberos.service.name": "kafka", GSSAPI_JAAS: KEYTAB.replace("kafka/b1@R", "*")}
        )
    options["sasl.kerberos.service.name"] = "kafka"
    assert with_options(options).broker_login("CLIENT") == TicketLogin(
        KerberosLogin("kafka/b1@R", "/k"), "kafka", GSSAPI_JAAS
    )
    assert warnings_for({**SASL, **options}) == [
        "These options of Kafka's have no effect in this release: sasl.kerberos.kinit.cmd"
    ]


OAUTH_JAAS = "listener.name.client.oauthbearer.sasl.jaas.config"
OAUTH = f"{KAFKA}oauthbearer.OAuthBearerLoginModule"
URL = "sasl.oauthbearer.token.endpoint.url"
LOGIN_HANDLER = "listener.name.client.oauthbearer.sasl.login.callback.handler.class"


def by_tokens(options: Mapping[str, str]) -> TokenLogin:
    login = with_options(
        {
            "zookeeper.connect": "localhost:1",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": "https://host/keys",
            **options,
        }
    ).broker_login("CLIENT")
    assert isinstance(login, TokenLogin)
    return login


def test_a_broker_of_a_cluster_logs_in_at_the_others_by_tokens() -> None:
    line = {OAUTH_JAAS: f'{OAUTH} required clientId="b" clientSecret="hush" scope="all";'}
    for more in ({}, {LOGIN_HANDLER: f"{KAFKA}oauthbearer.secured.OAuthBearerLoginCallbackHandler"}):
        login = by_tokens({URL: "https://host/token", **line, **more})
        assert (login.url, login.client) == ("https://host/token", ClientCredentials("b", "hush", "all"))
        assert "hush" not in repr(login.client)
    options = {
        "sasl.oauthbearer.client.credentials.client.id": "b",
        "sasl.oauthbearer.client.credentials.client.secret": "hush",
        "sasl.oauthbearer.scope": "all",
    }
    assert by_tokens({URL: "https://host/token", **options}).client == ClientCredentials("b", "hush", "all")
    assert by_tokens({URL: "file:///run/token"}).url == "file:///run/token"
    unsecured = {
        OAUTH_JAAS: f'{OAUTH} required unsecuredLoginStringClaim_sub="b";',
        "listener.name.client.oauthbearer.sasl.server.callback.handler.class": UNSECURED,
    }
    assert by_tokens(unsecured).url is None


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "this one has no token to do so: set sasl.oauthbearer.token.endpoint.url"),
        ({OAUTH_JAAS: f'{OAUTH} required unsecuredLoginStringClaim_sub="b";'}, "no token to do so"),
        (
            {"listener.name.client.oauthbearer.sasl.server.callback.handler.class": UNSECURED},
            'unsecuredLoginStringClaim_sub="…"',
        ),
        ({URL: "https://host/token"}, 'clientId="…" clientSecret="…"'),
        ({URL: "ftp://host/token"}, "begin it with https://"),
        ({URL: "https://b:hush@host/token"}, "must not hold a user"),
        ({URL: "file://elsewhere/token"}, "names no file"),
        ({URL: "file:///t", "tidelog.oauthbearer.allowed.urls": "https://host/keys"}, "not among the URLs"),
        ({LOGIN_HANDLER: f"{KAFKA}oauthbearer.OAuthBearerLoginCallbackHandler"}, "asks for tokens: set"),
        ({LOGIN_HANDLER: "com.acme.Tokens"}, "com.acme.Tokens, a class of Java"),
    ],
)
def test_a_broker_without_a_token_for_the_others_does_not_start(options: Mapping[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refusal:
        by_tokens(options)
    assert "hush" not in str(refusal.value)


def test_a_class_for_logins_is_for_tokens_alone() -> None:
    handler = f"{KAFKA}oauthbearer.OAuthBearerLoginCallbackHandler"
    with pytest.raises(ConfigError, match=r"cannot be run here for SCRAM-SHA-256: drop the option$"):
        with_options(
            {"sasl.enabled.mechanisms": "SCRAM-SHA-256", "sasl.login.callback.handler.class": handler}
        )


def test_dynamic_lines_are_checked_and_told() -> None:
    options = {"sasl.enabled.mechanisms": "PLAIN", JAAS: f'{PLAIN_MODULE} required user_alice="one";'}
    broker = with_options(options)
    with pytest.raises(ConfigError, match="cannot be read"):
        broker.apply_dynamic({}, {JAAS: "nonsense"})
    assert broker.apply_dynamic({}, {JAAS: f'{PLAIN_MODULE} required user_bob="two";'}) == {JAAS}
    jaas = broker.sasl["CLIENT"].mechanisms[0].jaas
    assert jaas is not None
    assert jaas.options == {"user_bob": "two"}
    assert broker.apply_dynamic({}, {}) == {JAAS}
