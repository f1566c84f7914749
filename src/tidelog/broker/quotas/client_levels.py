"""Whose quota a client has: Kafka's eight levels, and what those who have a quota in common have used of it.

The first of these that has a quota decides, for each kind of quota by itself:

1. user and client id          4. default user, client id                 7. client id
2. user, default client id     5. default user, default client id         8. default client id
3. user                        6. default user

A quota of a user (3, 6) is one for all clients of the user; one of a client id (7, 8) for all users with that
client id; all others are for each user with each client id. The default of a level is no quota in common:
each has as much.

What is known of clients is forgotten when they have been away for an hour, or have another quota, by the time
that somebody wants to see it (``broker/metrics``), and when they are the least active of very many. Used by
``client_quotas``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from math import inf
from typing import Final, Generic, TypeVar

from tidelog.broker.quotas.payer import Payer
from tidelog.config.client_quotas import CLIENT_ID, USER, QuotaEntity

IDLE_MS: Final = 3_600_000
MAX_SHARES: Final = 20_000
_KNOWN_CLIENTS = 20_000
_LOOKED_AT_ONCE = 100
_SAMPLE = 64
# In place of the user, or the client id, of a share for which it does not matter: nobody is called so.
_NOBODY = "\0"

MeterT = TypeVar("MeterT")


class Share(Generic[MeterT]):
    """A quota that some clients have in common, or one alone, and what they have used of it."""

    __slots__ = (
        "client_id",
        "due_s",
        "last_used_ms",
        "limit",
        "meter",
        "owed",
        "room",
        "throttled",
        "user",
        "version",
    )

    def __init__(self, user: str, client_id: str, limit: float, meter: MeterT) -> None:
        self.user = user
        """Empty if it does not matter; so is the client id."""
        self.client_id = client_id
        self.limit = limit
        self.meter = meter
        self.last_used_ms = 0.0
        self.throttled = 0
        """How often somebody had to pause because of it."""
        self.version = 0
        """Of the quotas that its limit comes from."""
        self.owed = 0.0
        """What was used and is not recorded yet; none but ``request_time`` puts that off, until ``due_s``."""
        self.due_s = -inf
        self.room = 0.0
        """What could surely be used when it was recorded last."""


class ClientLevels(Generic[MeterT]):
    """The quotas of one kind, and the shares of the clients they apply to."""

    def __init__(self, new_meter: Callable[[], MeterT]) -> None:
        self.shares: dict[tuple[str, str], Share[MeterT]] = {}
        """By user and client id, either of them empty where it does not matter."""
        self._new_meter = new_meter
        self._limits: Mapping[QuotaEntity, float] = {}
        self._version = 0
        self.found: dict[Payer, Share[MeterT] | None] = {}
        """What is known of clients as they are called: their shares, and who has none."""

    def set_limits(self, limits: Mapping[QuotaEntity, float]) -> None:
        """Other quotas are in force; what was used stays used."""
        self._limits = limits
        self._version += 1
        self.found.clear()

    def share_of(self, user: str, client_id: str, now_ms: float) -> Share[MeterT] | None:
        """The quota that a client has; None if it has none."""
        return self.share_of_payer(Payer(user, client_id), now_ms)

    def share_of_payer(self, payer: Payer, now_ms: float) -> Share[MeterT] | None:
        """The same."""
        try:
            share = self.found[payer]
        except KeyError:
            share = self._find(*payer, now_ms)
            if len(self.found) >= _KNOWN_CLIENTS:
                self.found.clear()
            self.found[payer] = share
        if share is not None:
            share.last_used_ms = now_ms
        return share

    def _find(self, user: str, client_id: str, now_ms: float) -> Share[MeterT] | None:
        matched = match(self._limits, user, client_id)
        if matched is None:
            return None
        limit, shared_by = matched
        share = self.shares.get(shared_by)
        if share is None:
            if len(self.shares) >= MAX_SHARES:
                self._forget(now_ms)
            share = self.shares[shared_by] = Share(*shared_by, limit, self._new_meter())
        share.limit = limit
        share.due_s = -inf
        share.version = self._version
        return share

    def in_use(self, now_ms: float) -> Generator[None, None, list[Share[MeterT]]]:
        """The shares that count, those first that were used last; all others are forgotten.

        Yields where others may have their turn.
        """
        for number, (key, share) in enumerate(list(self.shares.items()), 1):
            is_away = now_ms - share.last_used_ms >= IDLE_MS
            if self.shares.get(key) is share and (is_away or not self._is_in_force(key, share)):
                del self.shares[key]
                self.found.clear()
            if not number % _LOOKED_AT_ONCE:
                yield
        return sorted(self.shares.values(), key=lambda share: share.last_used_ms, reverse=True)

    def _is_in_force(self, key: tuple[str, str], share: Share[MeterT]) -> bool:
        """Whether somebody still has this share; its limit is the one of now then."""
        if share.version == self._version:
            return True
        user, client_id = key
        matched = match(self._limits, user or _NOBODY, client_id or _NOBODY)
        if matched is None or matched[1] != key:
            return False
        share.limit, _ = matched
        share.version = self._version
        return True

    def _forget(self, now_ms: float) -> None:
        """Forget the shares that were not used for long; if there are none, some of the least used.

        Which those are is estimated from a sample, and only some go at a time: all of it, and to sort them,
        would make every client wait while a crowd of names comes.
        """
        shares = list(self.shares.values())
        sample = sorted(share.last_used_ms for share in shares[:: max(len(shares) // _SAMPLE, 1)])
        away_ms = now_ms - IDLE_MS
        limit_ms = max(sample[len(sample) // 4], away_ms)
        left = max(len(shares) // 16, 1)
        for share in shares:
            if share.last_used_ms <= limit_ms:
                del self.shares[share.user, share.client_id]
                left -= 1
                if not left:
                    break
        self.found.clear()


def match(
    limits: Mapping[QuotaEntity, float], user: str, client_id: str
) -> tuple[float, tuple[str, str]] | None:
    """The quota of a client, and by whom it is shared."""
    for by_user, by_client in _LEVELS:
        parts: list[tuple[str, str | None]] = []
        if by_user is not None:
            parts.append((USER, user if by_user else None))
        if by_client is not None:
            parts.append((CLIENT_ID, client_id if by_client else None))
        limit = limits.get(tuple(parts))
        if limit is not None:
            return limit, ("" if by_user is None else user, "" if by_client is None else client_id)
    return None


# Whether a level names the user, and the client id; False is the default of those, None is that it has none.
_LEVELS: tuple[tuple[bool | None, bool | None], ...] = (
    (True, True),
    (True, False),
    (True, None),
    (False, True),
    (False, False),
    (False, None),
    (None, True),
    (None, False),
)
