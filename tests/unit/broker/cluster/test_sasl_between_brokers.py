"""Brokers log in at each other, and a user is known to all of them as soon as one was told."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.rigs.cluster_thread import ClusterThread
from tests.rigs.sasl_broker import KAFKA

import tidelog.client as ours
from tidelog.client.admin.scram_users import ScramDeletion, ScramUpsertion
from tidelog.client.errors import AuthenticationError
from tidelog.security.principal import Principal
from tidelog.security.sasl.scram_credential import ScramMechanism

BROKER = "listener.name.inside.scram-sha-512.sasl.jaas.config"
OPTIONS = {
    "listeners": "OUTSIDE://127.0.0.1:0,INSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "OUTSIDE:SASL_PLAINTEXT,INSIDE:SASL_PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    BROKER: f'{KAFKA}scram.ScramLoginModule required username="broker" password="broker-secret";',
    "tidelog.bootstrap.user": "broker:broker-secret:SCRAM-SHA-512",
}


def login(bootstrap: str, user: str, password: str) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
    }


def test_a_cluster_in_which_everybody_logs_in(tmp_path: Path) -> None:
    with (
        ClusterThread(tmp_path, 3, options=OPTIONS) as cluster,
        ours.Admin(login(cluster.bootstrap, "broker", "broker-secret")) as admin,
    ):
        for result in admin.create_topics([ours.NewTopic("orders", partitions=3, replication_factor=3)]):
            result.raise_for_error()
        for changed in admin.alter_user_scram_credentials([ScramUpsertion("alice", "one")]):
            changed.raise_for_error()
        cluster.wait_for(lambda: all("alice" in each.image.user_configs for each in cluster.brokers.values()))
        with ours.Producer(login(cluster.bootstrap, "alice", "one"), acks="all") as producer:
            deliveries = [producer.send("orders", b"x", partition=each) for each in range(3)]
            assert [each.result(30).offset for each in deliveries] == [0, 0, 0]
        for removed in admin.alter_user_scram_credentials([ScramDeletion("alice", "SCRAM-SHA-512")]):
            removed.raise_for_error()
        cluster.wait_for(
            lambda: all("alice" not in each.image.user_configs for each in cluster.brokers.values())
        )
        for broker in cluster.brokers:
            with (
                ours.Admin(login(cluster.bootstrap_of(broker), "alice", "one")) as refused,
                pytest.raises(AuthenticationError),
            ):
                refused.list_topics()


def test_all_brokers_hear_of_delegation_tokens(tmp_path: Path) -> None:
    with ClusterThread(tmp_path, 2, options={**OPTIONS, "delegation.token.secret.key": "shared"}) as cluster:
        alice = Principal("alice")
        one, two = (each.delegation_tokens for each in cluster.brokers.values())
        token = cluster.run(one.create(alice, alice, (), -1))
        image = cluster.brokers[2].image
        cluster.wait_for(lambda: token.id in image.delegation_tokens)
        mac = one.hmac_of(token)
        assert two.hmac_of(token) == mac
        assert cluster.call(lambda: two.login(ScramMechanism.SHA_256, token.id, b"salt")) is not None
        cluster.run(two.expire(alice, mac, -1))
        cluster.wait_for(lambda: token.id not in cluster.brokers[1].image.delegation_tokens)
        assert cluster.call(lambda: one.login(ScramMechanism.SHA_256, token.id, b"salt")) is None
