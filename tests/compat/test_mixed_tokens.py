"""Delegation tokens of one Apache Kafka 3.9 and one Tidelog broker, in ZooKeeper: each is good at both.

What one broker makes, renews and ends the other learns from the znodes and their notices; the nodes have the
same fields, and both work out the same proof.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from foreign.broker_process import BrokerProcess, free_port
from tests.compat.conftest import available
from tests.compat.mixed_cluster import KAFKA, TIDELOG, MixedCluster, without_features
from tests.rigs.sasl_broker import KAFKA as MODULES

from tidelog import Admin
from tidelog.client.admin.delegation_tokens import DelegationToken
from tidelog.client.errors import AuthenticationError

_PLAIN = f'{MODULES}plain.PlainLoginModule required user_alice="alice-secret" user_bob="bob-secret";'
_SCRAM = f"{MODULES}scram.ScramLoginModule required;"


class Pair:
    """Both brokers, and where clients log in at each."""

    def __init__(self, cluster: MixedCluster) -> None:
        self.cluster = cluster
        self._ports: dict[int, int] = {}

    def start(self, broker_id: int) -> BrokerProcess:
        start = self.cluster.kafka if broker_id == KAFKA else self.cluster.tidelog
        port = self._ports[broker_id] = free_port()

        def options(address: str) -> dict[str, str]:
            addresses = f"PLAINTEXT://{address},SASL_PLAINTEXT://127.0.0.1:{port}"
            return {
                "listeners": addresses,
                "advertised.listeners": addresses,
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": _PLAIN,
                "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": _SCRAM,
                "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": _SCRAM,
                "delegation.token.secret.key": "the same on all brokers",
            }

        return start(broker_id, options)

    def user(self, broker_id: int, name: str = "alice") -> dict[str, str]:
        return {
            "bootstrap.servers": f"127.0.0.1:{self._ports[broker_id]}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": name,
            "sasl.password": f"{name}-secret",
        }

    def logs_in(self, broker_id: int, token: DelegationToken) -> bool:
        login = {
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": token.token_id,
            "sasl.password": token.password,
            "sasl.tokenauth": "true",
        }
        try:
            with Admin(self.user(broker_id) | login) as admin:
                admin.describe_cluster()
        except AuthenticationError:
            return False
        return True


@pytest.fixture(scope="module", params=["kafka", "tidelog"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both brokers; the parameter says which of them came first and is the controller."""
    directory: Path = tmp_path_factory.mktemp("mixed-tokens")
    with available(), MixedCluster(directory) as cluster:
        pair = Pair(cluster)
        if request.param == "kafka":
            pair.start(KAFKA)
            pair.start(TIDELOG)
        else:
            without_features(pair.start(TIDELOG).address)
            pair.start(KAFKA)
        yield pair


def node_of(pair: Pair, token: DelegationToken) -> dict[str, object] | None:
    found: dict[str, object] | None = pair.cluster.json(f"/delegation_token/tokens/{token.token_id}")
    return found


@pytest.mark.parametrize(("maker", "other"), [(TIDELOG, KAFKA), (KAFKA, TIDELOG)], ids=["ours", "kafkas"])
def test_a_token_of_one_broker_is_good_at_both_until_the_other_ends_it(
    pair: Pair, maker: int, other: int
) -> None:
    with Admin(pair.user(maker)) as admin:
        token = admin.create_delegation_token(renewers=["User:bob"], max_lifetime_ms=7_200_000)
    node = node_of(pair, token)
    assert node == {
        "version": 3,
        "owner": "User%3Aalice",
        "tokenRequester": "User%3Aalice",
        "renewers": ["User%3Abob"],
        "issueTimestamp": token.issued_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expires_ms,
        "tokenId": token.token_id,
    }
    for broker_id in (KAFKA, TIDELOG):
        pair.cluster.wait(partial(pair.logs_in, broker_id, token), f"{broker_id} knows the token of {maker}")
    with Admin(pair.user(other, "bob")) as admin:
        assert token in admin.describe_delegation_tokens(["User:bob"])
        soon_ms = admin.renew_delegation_token(token.hmac, period_ms=600_000)
    with Admin(pair.user(maker)) as admin:
        pair.cluster.wait(
            lambda: soon_ms in {each.expires_ms for each in admin.describe_delegation_tokens()},
            f"{maker} knows of the renewal at {other}",
        )
    with Admin(pair.user(other)) as admin:
        admin.expire_delegation_token(token.hmac)
    assert node_of(pair, token) is None
    pair.cluster.wait(lambda: not pair.logs_in(maker, token), f"{maker} knows of the end at {other}")
