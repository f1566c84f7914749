"""What a broker logs in by at others follows its options, as its own listener does."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from tests.rigs.sasl_broker import KAFKA

from tidelog.broker.cluster.peer_settings import PeerSettings
from tidelog.client._address import Address
from tidelog.client._network.connection import Connection
from tidelog.client._network.retry import Deadline
from tidelog.client._network.security import Security
from tidelog.config.broker_config import BrokerConfig
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidelog.wire.schema import Payload

INTER_BROKER = "sasl.mechanism.inter.broker.protocol"
PLAIN_LINE = "listener.name.inside.plain.sasl.jaas.config"
OAUTH = "listener.name.inside.oauthbearer."


def plain_line(username: str, password: str) -> str:
    module = f"{KAFKA}plain.PlainLoginModule"
    return f'{module} required username="{username}" password="{password}" user_{username}="{password}";'


OPTIONS = {
    "broker.id": "1",
    "zookeeper.connect": "localhost:1",
    "listeners": "INSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
    "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    INTER_BROKER: "PLAIN",
    PLAIN_LINE: plain_line("broker", "one"),
    f"{OAUTH}sasl.server.callback.handler.class": (
        f"{KAFKA}oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
    ),
    f"{OAUTH}sasl.jaas.config": (
        f'{KAFKA}oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
    ),
}


class Listening:
    """The end of a connection that takes every login, and remembers it."""

    address = Address("127.0.0.1", 9092)
    session_lifetime_ms = 0

    def __init__(self) -> None:
        self.mechanism = ""
        self.said = b""

    async def request(self, message: Payload, response_type: type[Payload], deadline: Deadline) -> Any:
        if isinstance(message, SaslHandshakeRequest):
            self.mechanism = message.mechanism
            return SaslHandshakeResponse()
        assert isinstance(message, SaslAuthenticateRequest)
        self.said = bytes(message.auth_bytes)
        return SaslAuthenticateResponse()


def log_in(security: Security | None) -> Listening:
    assert security is not None
    listening = Listening()
    asyncio.run(security.authenticate(cast(Connection, listening), Deadline(10_000)))
    return listening


def test_a_login_that_is_changed_while_the_broker_runs_is_the_next_ones() -> None:
    config = BrokerConfig(OPTIONS)
    security = PeerSettings(config).of("INSIDE").security
    assert log_in(security).said == b"\0broker\0one"
    config.apply_dynamic({}, {PLAIN_LINE: plain_line("broker", "two")})
    assert log_in(security).said == b"\0broker\0two"
    config.apply_dynamic({}, {})
    assert log_in(security).said == b"\0broker\0one"


def test_so_is_the_mechanism() -> None:
    config = BrokerConfig(OPTIONS)
    security = PeerSettings(config).of("INSIDE").security
    assert log_in(security).mechanism == "PLAIN"
    config.apply_dynamic({}, {INTER_BROKER: "OAUTHBEARER"})
    by_token = log_in(security)
    assert by_token.mechanism == "OAUTHBEARER"
    assert by_token.said.startswith(b"n,,\x01auth=Bearer ")
    config.apply_dynamic({}, {INTER_BROKER: "PLAIN"})
    assert log_in(security).mechanism == "PLAIN"


def test_a_source_of_tokens_is_kept_while_its_options_stay() -> None:
    config = BrokerConfig({**OPTIONS, INTER_BROKER: "OAUTHBEARER"})
    security = PeerSettings(config).of("INSIDE").security
    assert security is not None
    log_in(security)
    before = security.sasl._current  # type: ignore[union-attr]
    config.apply_dynamic({}, {"log.cleaner.threads": "2"})
    log_in(security)
    assert security.sasl._current is before  # type: ignore[union-attr]
