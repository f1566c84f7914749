"""One broker that nobody uses without TLS, with a listener for each way to say who one is, and access rules.

| listener | who one is |
|---|---|
| TLS | nobody: ``User:ANONYMOUS`` |
| MUTUAL | the name in one's certificate |
| LOGIN | who logs in by PLAIN, SCRAM or OAUTHBEARER |

Whoever it is may write and read topics and groups whose names begin with ``open-``, and see ``shown``. The
``admin`` may do everything. The options are the same for Tidelog and for Apache Kafka, which tells whether a
failing test or the broker is wrong (TIDELOG_COMPAT_ORACLE=1).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from foreign.apache_kafka import ApacheKafka
from foreign.broker_process import BrokerProcess, Tidelog, free_port
from tests.compat.conftest import BROKER_OPTIONS
from tests.integration.sasl_setup import Issuer
from tests.rigs.certificates import Certificates

from tidelog import Admin, NewTopic
from tidelog.client._network.cluster import Cluster
from tidelog.client._network.from_options import network_settings
from tidelog.client.options import ADMIN as ADMIN_OPTIONS
from tidelog.client.options import ClientConfig
from tidelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from tidelog.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse

MODULES = "org.apache.kafka.common.security"
PLAIN_MODULE = f"{MODULES}.plain.PlainLoginModule required"
SCRAM_MODULE = f"{MODULES}.scram.ScramLoginModule required"
OAUTH_MODULE = f"{MODULES}.oauthbearer.OAuthBearerLoginModule required"
TOKEN_FILE_HANDLER = f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
TOKEN_VALIDATOR = f"{MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
ADMIN, ADMIN_PASSWORD = "admin", "admin's word"
USER, PASSWORD = "alice", "alice's, word"
CERTIFIED = "client"

_LISTENERS = {"LOGIN": "SASL_SSL", "TLS": "SSL", "MUTUAL": "SSL"}
_DIGESTS = {1: "sha256", 2: "sha512"}
_TOPIC, _GROUP, _READ, _WRITE, _DESCRIBE, _ALLOW, _LITERAL, _PREFIXED = 2, 3, 3, 4, 8, 3, 3, 4


@contextmanager
def secured_broker(kind: str, directory: Path) -> Iterator[SecuredBroker]:
    """A running one; ``kind`` is one of ``BROKERS``."""
    with pytest.MonkeyPatch.context() as patch:
        broker = SecuredBroker(kind, directory)
        files = [broker.issuer.path, broker.token("token"), broker.token("forged")]
        allowed = ",".join(file.as_uri() for file in files)
        # Java's clients and brokers read tokens and keys from nowhere else.
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={allowed}")
        broker.start()
        try:
            yield broker
        finally:
            broker.process.stop()


class SecuredBroker:
    """The broker, and what clients need to know of it."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.pem = Certificates(directory / "certificates")
        self.issuer = Issuer(directory / "keys.json")
        self.directory = directory
        forger = Issuer(directory / "forged-keys.json")
        for name, issuer in (("token", self.issuer), ("forged", forger)):
            self.token(name).write_text(issuer.token(USER, lifetime_s=3600))
        self.process: BrokerProcess = Tidelog(directory) if kind == "tidelog" else ApacheKafka(directory)
        self.process.tls = ssl.create_default_context(cafile=str(self.pem.authority))
        self._ports = {"LOGIN": self.process.port, "TLS": free_port(), "MUTUAL": free_port()}
        self.process.options = {**BROKER_OPTIONS, **self._options()}
        if isinstance(self.process, ApacheKafka):
            self.process.options |= _controller(self.process.controller_port, self.process.options)

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self._ports[listener]}"

    def start(self) -> None:
        """Start the broker, and make users, rules and topics."""
        self.process.start()
        asyncio.run(self._ask(_add_user))
        everybody = [each for name in (USER, CERTIFIED, "ANONYMOUS") for each in _rules(name)]
        asyncio.run(self._ask(partial(_add_rules, everybody)))
        for name in ("shown", "hidden"):
            self.make_topic(name)

    def token(self, name: str) -> Path:
        """A file with a token of the user: ``token``, or one that somebody else has signed, ``forged``."""
        return self.directory / f"{name}.jwt"

    def admin_options(self) -> dict[str, Any]:
        """For Tidelog's clients."""
        return {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "sasl_username": ADMIN,
            "sasl_password": ADMIN_PASSWORD,
            "ssl_truststore_location": self.pem.authority,
        }

    def properties(self, name: str, *, mechanism: str, username: str, password: str) -> Path:
        """A file for Kafka's tools."""
        module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
        lines = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{module} username="{username}" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.pem.authority,
        }
        path = self.directory / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return path

    @property
    def administrator(self) -> Path:
        return self.properties("admin", mechanism="PLAIN", username=ADMIN, password=ADMIN_PASSWORD)

    def make_topic(self, name: str) -> None:
        """A topic of one partition."""
        with Admin(bootstrap_servers=self.address("LOGIN"), **self.admin_options()) as admin:
            (created,) = admin.create_topics([NewTopic(name, 1)])
            assert created.error is None, created

    def open_topic(self, name: str, user: str, group: str) -> None:
        """A topic that somebody writes and reads, as a member of a group."""
        self.make_topic(name)
        wanted = ((_TOPIC, name, _WRITE), (_TOPIC, name, _READ), (_GROUP, group, _READ))
        rules = [_rule(user, kind, resource, _LITERAL, operation) for kind, resource, operation in wanted]
        asyncio.run(self._ask(partial(_add_rules, rules)))

    async def _ask(self, work: Callable[[Cluster, int], Awaitable[None]]) -> None:
        address = self.address("LOGIN")
        config = ClientConfig.parse(ADMIN_OPTIONS, bootstrap_servers=address, **self.admin_options())
        async with Cluster(address, network_settings(config)) as cluster:
            (node,) = cluster.metadata.nodes
            await work(cluster, node)

    def _options(self) -> dict[str, str]:
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self._ports.items())
        login = "listener.name.login."
        own = f'username="{ADMIN}" password="{ADMIN_PASSWORD}"'
        users = f'user_{ADMIN}="{ADMIN_PASSWORD}" user_{USER}="{PASSWORD}"'
        oauth = f"{login}oauthbearer.sasl."
        return {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": ",".join(f"{a}:{b}" for a, b in _LISTENERS.items()),
            "inter.broker.listener.name": "LOGIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            f"{login}plain.sasl.jaas.config": f"{PLAIN_MODULE} {own} {users};",
            f"{login}scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE};",
            f"{login}scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE};",
            f"{oauth}jaas.config": f"{OAUTH_MODULE};",
            f"{oauth}server.callback.handler.class": TOKEN_VALIDATOR,
            f"{oauth}oauthbearer.jwks.endpoint.url": self.issuer.path.as_uri(),
            f"{oauth}oauthbearer.expected.issuer": "tests",
            f"{oauth}oauthbearer.expected.audience": "us",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.pem.broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.pem.authority),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN}",
            "auto.create.topics.enable": "false",
        }


def _controller(port: int, options: dict[str, str]) -> dict[str, str]:
    """What Apache Kafka needs besides: a controller that knows the broker."""
    own = f'username="{ADMIN}" password="{ADMIN_PASSWORD}" user_{ADMIN}="{ADMIN_PASSWORD}"'
    return {
        "listeners": f"{options['listeners']},CONTROLLER://127.0.0.1:{port}",
        "listener.security.protocol.map": f"{options['listener.security.protocol.map']},"
        "CONTROLLER:SASL_PLAINTEXT",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": f"{PLAIN_MODULE} {own};",
    }


async def _add_user(cluster: Cluster, node: int) -> None:
    salt = os.urandom(16)
    for number, digest in _DIGESTS.items():  # a request changes a user once
        upsertion = ScramCredentialUpsertion(
            name=USER,
            mechanism=number,
            iterations=4096,
            salt=salt,
            salted_password=hashlib.pbkdf2_hmac(digest, PASSWORD.encode(), salt, 4096),
        )
        request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
        changed = await cluster.ask_node(node, request, AlterUserScramCredentialsResponse)
        assert [each.error_code for each in changed.results] == [0], changed


async def _add_rules(rules: list[AclCreation], cluster: Cluster, node: int) -> None:
    created = await cluster.ask_node(node, CreateAclsRequest(creations=rules), CreateAclsResponse)
    assert {each.error_code for each in created.results} == {0}, created


def _rules(name: str) -> list[AclCreation]:
    return [
        _rule(name, _TOPIC, "open-", _PREFIXED, _WRITE),
        _rule(name, _TOPIC, "open-", _PREFIXED, _READ),
        _rule(name, _GROUP, "open-", _PREFIXED, _READ),
        _rule(name, _TOPIC, "shown", _LITERAL, _DESCRIBE),
    ]


def _rule(name: str, kind: int, resource: str, pattern: int, operation: int) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=resource,
        resource_pattern_type=pattern,
        principal=f"User:{name}",
        host="*",
        operation=operation,
        permission_type=_ALLOW,
    )
