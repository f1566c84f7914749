"""Whoever is elected is alive and in sync, unless an unclean election is allowed and there is no other way.

Held for every partition of up to three replicas and every fate of their brokers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations, permutations

from tidelog.controller.cluster.elections import (
    Elected,
    elect_for_reassignment,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
)

BROKERS = (1, 2, 3)

Case = tuple[tuple[int, ...], tuple[int, ...], set[int]]


def subsets(of: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(combinations(of, size) for size in range(len(of) + 1))


def cases() -> Iterator[Case]:
    """Replicas in their order, those that are in sync (never none), and the live brokers."""
    for size in BROKERS:
        for replicas in permutations(BROKERS, size):
            for isr in subsets(replicas[::-1]):
                if isr:
                    for live in subsets(BROKERS):
                        yield replicas, isr, set(live)


def test_an_offline_partition_is_led_by_a_live_in_sync_replica_if_there_is_one() -> None:
    for replicas, isr, live in cases():
        fit = [each for each in replicas if each in live and each in isr]
        alive = [each for each in replicas if each in live]
        clean = Elected(fit[0], tuple(each for each in isr if each in live)) if fit else None
        unclean = Elected(alive[0], (alive[0],), recovering=True) if alive else None
        assert elect_offline(replicas, isr, live, allow_unclean=False) == clean
        assert elect_offline(replicas, isr, live, allow_unclean=True) == (clean or unclean)


def test_every_election_gives_a_live_leader_that_was_in_sync_and_stays_so() -> None:
    for replicas, isr, live in cases():
        for leaving in subsets(BROKERS):
            for elected in (
                elect_for_reassignment(replicas, isr, live),
                elect_preferred(replicas, isr, live),
                elect_for_shutdown(replicas, isr, live, leaving),
                elect_offline(replicas, isr, live, allow_unclean=False),
            ):
                if elected is not None:
                    assert elected.leader in live
                    assert elected.leader in elected.isr
                    assert set(elected.isr) <= set(isr)
                    assert not elected.recovering


def test_a_broker_that_shuts_down_neither_leads_nor_stays_in_sync() -> None:
    for replicas, isr, live in cases():
        for leaving in subsets(BROKERS):
            could = [each for each in replicas if each in isr and each in live and each not in leaving]
            staying = tuple(each for each in isr if each not in leaving)
            expected = Elected(could[0], staying) if could else None
            assert elect_for_shutdown(replicas, isr, live, leaving) == expected


def test_the_preferred_leader_is_the_first_replica_or_nobody() -> None:
    for replicas, isr, live in cases():
        can = replicas[0] in live and replicas[0] in isr
        assert elect_preferred(replicas, isr, live) == (Elected(replicas[0], isr) if can else None)
