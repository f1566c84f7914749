"""Rates of two samples of a cluster."""

from __future__ import annotations

from tests.unit.cli.top.samples import NODES, sample

from tidelog.cli.top.loads import ClusterLoad, load_between, visible


def load() -> ClusterLoad:
    """Two seconds, in which 100 records came to partition 0 and 300 to partition 1, and 50 were committed."""
    return load_between(sample(10.0, (1000, 0), committed=900), sample(12.0, (1100, 300), committed=950))


def test_records_and_bytes_a_second_are_differences() -> None:
    found = load()
    assert (found.records_per_second, found.bytes_per_second, found.seconds) == (200, 2000, 2)
    assert [(each.id, each.records_per_second, each.bytes_per_second) for each in found.brokers] == [
        (1, 50, 500),
        (2, 150, 1500),
    ]
    busy = found.topics[0]
    assert (busy.name, busy.records_per_second, busy.size_bytes) == ("orders", 200, 14_000)
    assert (busy.busiest_partition, busy.busiest_share) == (1, 0.75)


def test_groups_are_ordered_by_how_far_they_are_behind() -> None:
    billing, idle = load().groups
    assert (billing.group, billing.lag, billing.lag_per_second) == ("billing", 150, 25)
    assert billing.committed_per_second == 25
    assert (idle.lag, idle.lag_per_second, idle.committed_per_second) == (None, None, 0)


def test_a_log_that_was_made_anew_counts_nothing() -> None:
    again = load_between(sample(1.0, (1000, 0), committed=900), sample(2.0, (3, 0), committed=0))
    assert (again.records_per_second, again.bytes_per_second) == (0, 0)
    assert again.groups[0].committed_per_second == 0


def test_brokers_and_partitions_that_are_gone_are_counted() -> None:
    found = load_between(sample(1.0, (0, 0)), sample(2.0, (0, 0), nodes=NODES[:1]))
    assert [(each.id, each.alive) for each in found.brokers] == [(1, True), (2, False)]
    assert (found.offline, found.under_replicated) == (1, 1)


def test_internal_topics_are_left_out_unless_asked_for() -> None:
    assert [each.name for each in visible(load(), internal=False).topics] == ["orders"]
    assert len(visible(load(), internal=True).topics) == 2


def test_no_time_between_two_samples_is_no_failure() -> None:
    one = sample(1.0, (5, 5))
    assert load_between(one, one).records_per_second == 0
