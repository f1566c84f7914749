"""The coordinator of a transactional id in a cluster that loses another broker than its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.rigs.cluster_thread import ClusterThread

from tidelog import Producer
from tidelog.coordinator.runtime import Producer as ProducerEpoch
from tidelog.ids import TRANSACTION_STATE_TOPIC
from tidelog.scheduling.promise import Promise

NAME = "orders-writer"
TIMEOUT_MS = 60_000


@pytest.mark.parametrize(
    "lose", [ClusterThread.expire_and_keep_away, ClusterThread.stop], ids=["dies", "stops"]
)
def test_what_waits_for_a_follower_that_goes_is_answered_as_done(
    tmp_path: Path, lose: Callable[[ClusterThread, int], None]
) -> None:
    options = {"transaction.state.log.num.partitions": "1", "transaction.state.log.replication.factor": "3"}
    with ClusterThread(tmp_path, 3, options=options) as cluster:
        with Producer(bootstrap_servers=cluster.bootstrap, transactional_id=NAME) as producer:
            producer.init_transactions()
        leader = cluster.leader_of(TRANSACTION_STATE_TOPIC)
        partition = cluster.partition(leader, TRANSACTION_STATE_TOPIC)
        cluster.wait_for(lambda: len(partition.isr), lambda count: count == 3, "all replicas in sync")
        transactions = cluster.brokers[leader].coordinators.transactions
        follower = next(each for each in cluster.brokers if each != leader)

        def init(expected: ProducerEpoch | None) -> Promise[ProducerEpoch]:
            return cluster.call(lambda: transactions.init_producer_id(NAME, TIMEOUT_MS, expected))

        def answer(reply: Promise[ProducerEpoch]) -> ProducerEpoch:
            cluster.wait_for(lambda: reply.done, what="an answer")
            return reply.result()

        present = answer(init(None))
        cluster.call(lambda: cluster.brokers[follower].cluster.loops.stop(partition.topic_partition))
        epoch = partition.leader_epoch
        waiting = init(present)
        assert not waiting.done
        lose(cluster, follower)
        following = answer(waiting)
        assert following == ProducerEpoch(present.producer_id, present.epoch + 1)
        assert partition.leader_epoch > epoch
        assert answer(init(following)).epoch == following.epoch + 1
        assert transactions.runtime.loads == 1
