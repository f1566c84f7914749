from __future__ import annotations

import itertools

import pytest

from tidelog.broker.quotas import client_levels
from tidelog.broker.quotas.client_levels import ClientLevels, match
from tidelog.config.client_quotas import QuotaEntity

# Kafka's order, the most important first, and by whom each is shared.
LEVELS: list[tuple[QuotaEntity, tuple[str, str]]] = [
    ((("user", "alice"), ("client-id", "app")), ("alice", "app")),
    ((("user", "alice"), ("client-id", None)), ("alice", "app")),
    ((("user", "alice"),), ("alice", "")),
    ((("user", None), ("client-id", "app")), ("alice", "app")),
    ((("user", None), ("client-id", None)), ("alice", "app")),
    ((("user", None),), ("alice", "")),
    ((("client-id", "app"),), ("", "app")),
    ((("client-id", None),), ("", "app")),
]


def test_the_first_of_the_eight_levels_decides_whatever_others_there_are() -> None:
    for size in range(1, len(LEVELS) + 1):
        for chosen in itertools.combinations(range(len(LEVELS)), size):
            limits = {LEVELS[each][0]: float(each + 1) for each in chosen}
            assert match(limits, "alice", "app") == (chosen[0] + 1.0, LEVELS[chosen[0]][1])


def test_others_quotas_are_nobodys() -> None:
    others: dict[QuotaEntity, float] = {
        (("user", "bob"),): 1.0,
        (("client-id", "other"),): 1.0,
        (("user", "bob"), ("client-id", "app")): 1.0,
        (("user", "alice"), ("client-id", "other")): 1.0,
        (("ip", "192.0.2.1"),): 1.0,
    }
    assert match(others, "alice", "app") is None


def _in_use(levels: ClientLevels[list[float]], now_ms: float) -> list[tuple[str, str, float]]:
    steps = levels.in_use(now_ms)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return [(share.user, share.client_id, share.limit) for share in end.value]


def _levels(limits: dict[QuotaEntity, float]) -> ClientLevels[list[float]]:
    levels: ClientLevels[list[float]] = ClientLevels(list)
    levels.set_limits(limits)
    return levels


def test_clients_of_a_user_share_its_quota_and_users_of_the_default_do_not() -> None:
    levels = _levels({(("user", None),): 10.0})
    first, second = levels.share_of("alice", "a", 0.0), levels.share_of("alice", "b", 0.0)
    assert first is second is not None
    assert levels.share_of("bob", "a", 0.0) is not first


def test_what_was_used_stays_used_when_the_quota_changes() -> None:
    levels = _levels({(("user", None),): 10.0})
    before = levels.share_of("alice", "a", 0.0)
    levels.set_limits({(("user", "alice"),): 20.0})
    after = levels.share_of("alice", "a", 0.0)
    assert after is before
    assert after is not None
    assert after.limit == 20.0
    levels.set_limits({})
    assert levels.share_of("alice", "a", 0.0) is None


def test_a_flood_of_client_ids_is_forgotten_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_levels, "MAX_SHARES", 100)
    monkeypatch.setattr(client_levels, "_KNOWN_CLIENTS", 50)
    levels = _levels({(("client-id", None),): 10.0})
    for number in range(1000):
        levels.share_of("alice", f"client-{number}", float(number))
        kept = levels.share_of("alice", "busy", float(number))
    assert len(levels.shares) <= 100
    assert levels.share_of("alice", "busy", 1000.0) is kept


def test_of_very_many_clients_those_that_are_busy_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_levels, "MAX_SHARES", 1000)
    levels = _levels({(("client-id", None),): 10.0})
    busy = {number: levels.share_of("alice", f"busy-{number}", 0.0) for number in range(50)}
    for number in range(5000):
        levels.share_of("alice", f"client-{number}", float(number))
        again = number % 50
        assert levels.share_of("alice", f"busy-{again}", float(number)) is busy[again]
    assert 500 < len(levels.shares) <= 1000
    # Those that were away for long go first.
    now_ms = client_levels.IDLE_MS + 10_000.0
    for number in range(5000):
        levels.share_of("alice", f"busy-{number % 50}", now_ms + number)
        levels.share_of("alice", f"new-{number}", now_ms + number)
    names = {share.client_id for share in levels.shares.values()}
    assert {f"busy-{number}" for number in range(50)} <= names
    assert not any(name.startswith("client-") for name in names)


def test_who_has_been_away_for_an_hour_is_not_shown_and_those_first_who_came_last() -> None:
    levels = _levels({(("client-id", None),): 10.0})
    for number, name in enumerate(("gone", "second", "first")):
        levels.share_of("alice", name, number * 1000.0)
    assert _in_use(levels, client_levels.IDLE_MS) == [("", "first", 10.0), ("", "second", 10.0)]
    # Whoever comes back counts again.
    levels.share_of("alice", "gone", 4_000_000.0)
    assert ("", "gone", 10.0) in _in_use(levels, 4_000_000.0)


@pytest.mark.parametrize(("entity", "shared_by"), LEVELS)
def test_a_share_that_nobody_has_any_more_is_not_shown_and_others_with_the_limit_of_now(
    entity: QuotaEntity, shared_by: tuple[str, str]
) -> None:
    levels = _levels({entity: 10.0})
    levels.share_of("alice", "app", 0.0)
    levels.set_limits({entity: 20.0, (("user", "bob"),): 5.0})
    assert _in_use(levels, 0.0) == [(*shared_by, 20.0)]
    levels.set_limits({(("user", "bob"),): 5.0})
    assert _in_use(levels, 0.0) == []
    assert levels.share_of("alice", "app", 0.0) is None


def test_a_share_is_not_shown_when_another_level_decides() -> None:
    levels = _levels({(("client-id", None),): 10.0})
    levels.share_of("alice", "app", 0.0)
    levels.set_limits({(("client-id", None),): 10.0, (("user", None),): 20.0})
    assert _in_use(levels, 0.0) == []
    levels.share_of("alice", "app", 0.0)
    assert _in_use(levels, 0.0) == [("alice", "", 20.0)]
