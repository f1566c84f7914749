"""A broker with a SASL listener beside a PLAINTEXT one, and a raw client that logs in there."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from pathlib import Path

from tests.rigs.raw_client import RawClient

from tidelog.client._network.security.mechanisms import Dialogue, oauthbearer, plain
from tidelog.client._network.security.scram import scram
from tidelog.errors import ErrorCode
from tidelog.testing.broker_thread import BrokerThread
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

KAFKA = "org.apache.kafka.common.security."
UNSECURED = f"{KAFKA}oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
OPEN, CLOSED = "OPEN", "CLOSED"
PREFIX = "listener.name.closed."

SASL_OPTIONS: Mapping[str, str] = {
    "listeners": f"{OPEN}://127.0.0.1:0,{CLOSED}://127.0.0.1:0",
    "listener.security.protocol.map": f"{OPEN}:PLAINTEXT,{CLOSED}:SASL_PLAINTEXT",
    "inter.broker.listener.name": OPEN,
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    f"{PREFIX}plain.sasl.jaas.config": (
        f'{KAFKA}plain.PlainLoginModule required user_alice="alice-secret" user_bob="bob-secret";'
    ),
    f"{PREFIX}oauthbearer.sasl.server.callback.handler.class": UNSECURED,
    "tidelog.bootstrap.user": "admin:admin-secret:SCRAM-SHA-512",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


def sasl_broker(data_dir: Path, **more: str) -> BrokerThread:
    """A broker that is not started; options with underscores for dots."""
    return BrokerThread(
        data_dir, options={**SASL_OPTIONS, **{name.replace("_", "."): text for name, text in more.items()}}
    )


def port_of(broker: BrokerThread, listener: str = CLOSED) -> int:
    """Where a listener is."""
    return broker.call(lambda each: next(one.port for one in each.advertised if one.name == listener))


def unsecured_token(name: str, lifetime_s: float = 60.0) -> str:
    """A token that says who somebody is, signed by nobody."""
    now_s = time.time()
    parts = ({"alg": "none"}, {"sub": name, "iat": now_s, "exp": now_s + lifetime_s})
    return ".".join(
        [*(base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in parts), ""]
    )


def dialogue_of(mechanism: str, name: str, password: str) -> Dialogue:
    """What a client says."""
    if mechanism == "PLAIN":
        return plain(name, password)
    if mechanism == "OAUTHBEARER":
        return oauthbearer(password)
    return scram(mechanism, name, password)


def shake_hands(client: RawClient, mechanism: str, version: int = 1) -> SaslHandshakeResponse:
    """Ask for a mechanism."""
    return client.ask(version, SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse)


def authenticate(client: RawClient, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
    """Send one message of a mechanism."""
    return client.ask(version, SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)


def log_in(
    client: RawClient, mechanism: str, name: str, password: str, version: int = 2
) -> SaslAuthenticateResponse:
    """The whole dialogue; gives the last answer, or the one that refused it."""
    handshake = shake_hands(client, mechanism)
    assert handshake.error_code == ErrorCode.NONE
    dialogue = dialogue_of(mechanism, name, password)
    message = next(dialogue)
    while True:
        response = authenticate(client, message, version)
        if response.error_code:
            return response
        try:
            message = dialogue.send(bytes(response.auth_bytes))
        except StopIteration:
            return response
