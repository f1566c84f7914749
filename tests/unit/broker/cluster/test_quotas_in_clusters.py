"""Quotas that one broker was told of hold on all, and lie in ZooKeeper as Kafka has them there."""

from __future__ import annotations

import json
from pathlib import Path

from tests.rigs.cluster_thread import ClusterThread

import tidelog.client as ours
from tidelog.client.admin.quotas import QuotaAlteration
from tidelog.client.admin.scram_users import ScramUpsertion


def test_quotas_hold_on_every_broker(tmp_path: Path) -> None:
    with ClusterThread(tmp_path, 3) as cluster, ours.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        both = {"user": "alice b", "client-id": None}
        for changed in admin.alter_user_scram_credentials([ScramUpsertion("alice b", "secret")]):
            changed.raise_for_error()
        alterations = [
            QuotaAlteration({"user": "alice b"}, {"producer_byte_rate": 1e6}),
            QuotaAlteration(both, {"request_percentage": 50.0}),
            QuotaAlteration({"ip": "192.0.2.1"}, {"connection_creation_rate": 5.0}),
        ]
        for result in admin.alter_client_quotas(alterations):
            result.raise_for_error()
        cluster.wait_for(lambda: all(len(each.image.quotas) == 3 for each in cluster.brokers.values()))
        assert all(each.quotas.on_produce for each in cluster.brokers.values())
        path = "/config/users/alice%20b"
        entries = json.loads(cluster.run(cluster.sessions[1].get(path))[0])["config"]
        assert entries.keys() == {"SCRAM-SHA-512", "producer_byte_rate"}, "credentials stay"
        assert entries["producer_byte_rate"] == "1000000"
        raw, _ = cluster.run(cluster.sessions[1].get(f"{path}/clients/<default>"))
        assert json.loads(raw) == {"version": 1, "config": {"request_percentage": "50.0"}}
        admin.alter_client_quotas(
            [
                QuotaAlteration({"user": "alice b"}, {"producer_byte_rate": None}),
                QuotaAlteration(both, {"request_percentage": None}),
            ]
        )
        cluster.wait_for(lambda: all(not each.quotas.on_produce for each in cluster.brokers.values()))
