"""A mixed cluster whose brokers log in at each other by OAUTHBEARER, with tokens of one issuer."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from foreign.broker_process import free_port
from joserfc import jwt
from joserfc.jwk import RSAKey
from tests.compat.conftest import available
from tests.compat.mixed_cluster import KAFKA, TIDELOG, MixedCluster

from tidelog import Admin, NewTopic, Producer

MODULES = "org.apache.kafka.common.security.oauthbearer"
SECRETS = {f"broker-{number}": f"secret of {number}" for number in (KAFKA, TIDELOG)}


class Issuer:
    """Gives brokers that know their secrets signed tokens, and shows its public key in a file."""

    def __init__(self, keys: Path) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "one"})
        self.given: list[str] = []
        keys.write_text(json.dumps({"keys": [self.key.as_dict(private=False)]}))
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                scheme, _, pair = self.headers["Authorization"].partition(" ")
                name, _, secret = base64.b64decode(pair).decode().partition(":")
                is_known = scheme == "Basic" and SECRETS.get(name) == secret
                is_asked = "grant_type=client_credentials" in form and "scope=brokers" in form
                self.send_response(200 if is_known and is_asked else 401)
                self.send_header("Content-Type", "application/json")
                answer = json.dumps({"access_token": issuer.token(name), "expires_in": 300}).encode()
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
                issuer.given.append(name)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/token"

    def token(self, name: str) -> str:
        now_s = int(time.time())
        claims = {"sub": name, "iat": now_s, "exp": now_s + 300, "iss": "tests", "scope": "brokers"}
        return jwt.encode({"alg": "RS256", "kid": "one"}, claims, self.key)


@pytest.fixture
def issuer(tmp_path: Path) -> Iterator[Issuer]:
    made = Issuer(tmp_path / "keys.json")
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def test_brokers_of_a_mixed_cluster_log_in_at_each_other_by_tokens(
    issuer: Issuer, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = f"file://{tmp_path / 'keys.json'}"
    monkeypatch.setenv(
        "JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.url},{keys}"
    )

    def options(number: int, address: str) -> dict[str, str]:
        name = f"broker-{number}"
        prefix = "listener.name.brokers.oauthbearer."
        listeners = f"PLAINTEXT://{address},BROKERS://127.0.0.1:{free_port()}"
        return {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            f"{prefix}sasl.jaas.config": f'{MODULES}.OAuthBearerLoginModule required clientId="{name}" '
            f'clientSecret="{SECRETS[name]}" scope="brokers";',
            f"{prefix}sasl.login.callback.handler.class": f"{MODULES}.OAuthBearerLoginCallbackHandler",
            f"{prefix}sasl.server.callback.handler.class": f"{MODULES}.OAuthBearerValidatorCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": issuer.url,
            "sasl.oauthbearer.jwks.endpoint.url": keys,
            "sasl.oauthbearer.expected.issuer": "tests",
        }

    with available(), MixedCluster(tmp_path) as cluster:
        cluster.kafka(KAFKA, lambda address: options(KAFKA, address))
        cluster.tidelog(TIDELOG, lambda address: options(TIDELOG, address))
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(topic, assignments={0: [KAFKA, TIDELOG], 1: [TIDELOG, KAFKA]})])
        cluster.wait_all_in_sync([(topic, 0), (topic, 1)])
        with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
            for partition in (0, 1):
                assert producer.send(topic, value=b"x", partition=partition).result(30).offset == 0
        cluster.stop(KAFKA)
        cluster.wait_led_by(TIDELOG, [(topic, 0), (topic, 1)])
    assert set(issuer.given) == set(SECRETS)
