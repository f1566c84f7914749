"""Access rules in a cluster: they hold on all brokers, whichever took them."""

from __future__ import annotations

from pathlib import Path

from tests.rigs.cluster_thread import ClusterThread
from tests.rigs.guarded_broker import rule

from tidelog.security.acls.model import AclBinding, Operation, ResourceType
from tidelog.security.principal import Principal
from tidelog.security.session import Session

OPTIONS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    # Brokers are clients of each other, and nobody logs in here.
    "super.users": "User:ANONYMOUS",
}


def test_a_rule_that_one_broker_takes_holds_on_all(tmp_path: Path) -> None:
    wanted = [
        rule(ResourceType.TOPIC, "orders", Operation.READ),
        rule(ResourceType.GROUP, "team-", Operation.READ, prefixed=True),
    ]
    with ClusterThread(tmp_path, 2, options={**OPTIONS, "default.replication.factor": "2"}) as cluster:

        def known(broker_id: int) -> set[AclBinding]:
            acls = cluster.brokers[broker_id].authorization.acls
            assert acls is not None
            return set(acls.rules)

        async def add() -> None:
            acls = cluster.brokers[1].authorization.acls
            assert acls is not None
            await acls.add(wanted)

        cluster.run(add())
        cluster.wait_for(lambda: known(2) == set(wanted))
        assert cluster.call(lambda: known(1)) == set(wanted)


def test_a_broker_that_leads_no_partition_of_the_audit_log_writes_to_it_all_the_same(tmp_path: Path) -> None:
    options = {
        **OPTIONS,
        "tidelog.audit.log.topic": "audit",
        "num.partitions": "1",
        "default.replication.factor": "1",
    }
    with ClusterThread(tmp_path, 2, options=options) as cluster:
        bob = Session("10.0.0.3", Principal("bob"))

        def ask(broker_id: int) -> bool:
            authorization = cluster.brokers[broker_id].authorization
            return authorization.allows(bob, Operation.WRITE, ResourceType.TOPIC, f"asked-at-{broker_id}")

        assert not any(cluster.call(lambda each=each: ask(each)) for each in (1, 2))  # type: ignore[misc]

        def written() -> bytes:
            for broker in cluster.brokers.values():
                topic = broker.image.topics.get("audit")
                if topic is not None and topic.partitions[0].leader == broker.broker_id:
                    log = broker.partitions.get("audit", 0).log
                    return log.read_bytes(0, 1 << 20) if log.log_end_offset else b""
            return b""

        cluster.wait_for(lambda: b"asked-at-1" in written() and b"asked-at-2" in written())
