"""Whoever is elected is alive and in sync, unless an unclean election is allowed and there is no other way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.controller.cluster.elections import (
    Elected,
    elect_for_reassignment,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
)

BROKERS = st.integers(1, 6)
REPLICAS = st.lists(BROKERS, min_size=1, max_size=5, unique=True)
SOME = st.sets(BROKERS)


def isr_of(replicas: list[int], wanted: set[int]) -> list[int]:
    """In-sync replicas are never none, and always replicas."""
    return [each for each in replicas if each in wanted] or replicas[-1:]


@given(REPLICAS, SOME, SOME, st.booleans())
def test_an_offline_partition_is_led_by_a_live_in_sync_replica_if_there_is_one(
    replicas: list[int], wanted: set[int], live: set[int], unclean: bool
) -> None:
    isr = isr_of(replicas, wanted)
    elected = elect_offline(replicas, isr, live, allow_unclean=unclean)
    fit = [each for each in replicas if each in live and each in isr]
    alive = [each for each in replicas if each in live]
    if fit:
        assert elected == Elected(fit[0], tuple(each for each in isr if each in live))
    elif unclean and alive:
        assert elected == Elected(alive[0], (alive[0],), recovering=True)
    else:
        assert elected is None


@given(REPLICAS, SOME, SOME, SOME)
def test_every_election_gives_a_live_leader_that_was_in_sync_and_stays_so(
    replicas: list[int], wanted: set[int], live: set[int], leaving: set[int]
) -> None:
    isr = isr_of(replicas, wanted)
    for elected in (
        elect_for_reassignment(replicas, isr, live),
        elect_preferred(replicas, isr, live),
        elect_for_shutdown(replicas, isr, live, leaving),
        elect_offline(replicas, isr, live, allow_unclean=False),
    ):
        if elected is not None:
            assert elected.leader in live
            assert elected.leader in isr
            assert elected.leader in elected.isr
            assert set(elected.isr) <= set(isr)
            assert not elected.recovering


@given(REPLICAS, SOME, SOME, SOME)
def test_a_broker_that_shuts_down_neither_leads_nor_stays_in_sync(
    replicas: list[int], wanted: set[int], live: set[int], leaving: set[int]
) -> None:
    isr = isr_of(replicas, wanted)
    elected = elect_for_shutdown(replicas, isr, live, leaving)
    could = [each for each in replicas if each in isr and each in live and each not in leaving]
    assert (elected is not None) == bool(could)
    if elected is not None:
        assert elected.leader == could[0]
        assert elected.isr == tuple(each for each in isr if each not in leaving)


@given(REPLICAS, SOME, SOME)
def test_the_preferred_leader_is_the_first_replica_or_nobody(
    replicas: list[int], wanted: set[int], live: set[int]
) -> None:
    isr = isr_of(replicas, wanted)
    elected = elect_preferred(replicas, isr, live)
    can = replicas[0] in live and replicas[0] in isr
    assert elected == (Elected(replicas[0], tuple(isr)) if can else None)
