"""Brokers on which everybody has to log in, and what each client has to be told to do so.

With TLS there are two listeners: CLOSED speaks SASL_PLAINTEXT, SAFE speaks SASL_SSL; and access rules, by
which nobody but ``admin`` may do anything until he is allowed to.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
)
from confluent_kafka.admin import ResourceType as ConfluentResource
from joserfc import jwt
from joserfc.jwk import RSAKey
from tests.rigs.sasl_broker import KAFKA, UNSECURED, unsecured_token
from tests.rigs.tls_files import TlsFiles

from tidelog.testing.broker_process import BrokerProcess

PREFIX = "listener.name.closed."
SAFE_PREFIX = "listener.name.safe."
WAIT_S = 30.0
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PASSWORD = "alice=s, secret;"
ADMIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "admin",
    "sasl.password": "admin-secret",
}


class Login(NamedTuple):
    """What a client is told."""

    mechanism: str
    username: str
    password: str
    """A token, where the mechanism wants one."""
    trust: Path | None = None
    """The authority to trust, over TLS."""

    @property
    def protocol(self) -> str:
        return "SASL_PLAINTEXT" if self.trust is None else "SASL_SSL"

    def wrong(self) -> Login:
        """The same with another password."""
        return self._replace(password=unsecured_token("alice", -100) if self.is_token else "wrong")

    @property
    def is_token(self) -> bool:
        return self.mechanism == "OAUTHBEARER"


class Issuer:
    """Somebody who signs tokens."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.key = RSAKey.generate_key(2048, {"kid": "one"})
        path.write_text(json.dumps({"keys": [self.key.as_dict(private=False)]}))

    def token(self, name: str, lifetime_s: float = 120.0) -> str:
        now_s = int(time.time())
        claims: dict[str, Any] = {
            "sub": name,
            "iat": now_s,
            "exp": now_s + lifetime_s,
            "iss": "tests",
            "aud": "us",
        }
        return jwt.encode({"alg": "RS256", "kid": "one"}, claims, self.key)


def closed_broker(
    data_dir: Path,
    more: Mapping[str, str] | None = None,
    issuer: Issuer | None = None,
    tls: TlsFiles | None = None,
) -> BrokerProcess:
    """A broker with SASL listeners and no other; its secrets are in a file, not on its command line."""
    options = {
        "listeners": "CLOSED://127.0.0.1:0",
        "listener.security.protocol.map": "CLOSED:SASL_PLAINTEXT,SAFE:SASL_SSL",
        "inter.broker.listener.name": "CLOSED",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "tidelog.bootstrap.user": "admin:admin-secret:SCRAM-SHA-512",
        "offsets.topic.replication.factor": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    if tls is not None:
        options |= {
            "listeners": "CLOSED://127.0.0.1:0,SAFE://127.0.0.1:0",
            "listener.name.safe.ssl.keystore.location": str(tls.server),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin",
        }
    for prefix in (PREFIX, SAFE_PREFIX):
        options[f"{prefix}plain.sasl.jaas.config"] = (
            f'{KAFKA}plain.PlainLoginModule required user_alice="{PASSWORD}" user_bob="bob-secret";'
        )
        if issuer is None:
            options[f"{prefix}oauthbearer.sasl.server.callback.handler.class"] = UNSECURED
    if issuer is not None:
        options["sasl.oauthbearer.jwks.endpoint.url"] = issuer.path.as_uri()
        options["sasl.oauthbearer.expected.issuer"] = "tests"
        options["sasl.oauthbearer.expected.audience"] = "us,them"
    file = data_dir.with_suffix(".properties")
    file.write_text("".join(f"{name}={text}\n" for name, text in {**options, **(more or {})}.items()))
    # On its command line, as the process has an address of its own for the only listener.
    listeners = {} if tls is None else {"listeners": options["listeners"]}
    return BrokerProcess(data_dir, options=listeners, properties=file)


def safe_bootstrap(broker: BrokerProcess) -> str:
    """Where a broker's listener with TLS is."""
    found = re.search(r"serves .*SAFE://(127\.0\.0\.1:\d+)", broker.log)
    assert found is not None
    return found[1]


def allow(
    admin: AdminClient, *principals: str, prefix: str = "test-", deny: bool = False
) -> list[AclBinding]:
    """Let principals write and read topics, and read with groups, whose names begin with ``prefix``."""
    permission = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
    operations = [
        (ConfluentResource.TOPIC, AclOperation.WRITE),
        (ConfluentResource.TOPIC, AclOperation.READ),
        (ConfluentResource.TOPIC, AclOperation.CREATE),
        (ConfluentResource.GROUP, AclOperation.READ),
    ]
    bindings = [
        AclBinding(kind, prefix, ResourcePatternType.PREFIXED, principal, "*", operation, permission)
        for principal in principals
        for kind, operation in operations
    ]
    for future in admin.create_acls(bindings).values():
        future.result(WAIT_S)
    return bindings
