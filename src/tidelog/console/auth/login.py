"""Logs people in as SCRAM users of a cluster, by trying: the brokers decide, the console keeps no passwords.

A user who fails has to wait, longer each time, so that nobody tries passwords through the console faster than
at a broker; names that fail are remembered for some minutes, in a bounded table. Tries of one user at once
wait for each other, so that many get no further than one after another.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.errors import AuthenticationError
from tidelog.console.refusal import Refusal
from tidelog.console.settings import ClusterSettings

_AT_ONCE = 4
_WAITING = 32
"""Tries of one user that are under way or wait for their turn."""
_FREE_TRIES = 3
_LONGEST_WAIT_S = 60.0
_DOUBLINGS = 6
_REMEMBERED_S = 600.0
_REMEMBERED = 10_000
_OWN_LOGIN = ("sasl.jaas.config", "sasl.username", "sasl.password", "sasl.tokenauth", "sasl.mechanism")


class ScramLogin:
    """Tries passwords at one cluster."""

    def __init__(self, cluster: ClusterSettings, mechanism: str, now_s: Callable[[], float]) -> None:
        options = cluster.patient_options
        protocol = str(options.get("security.protocol", "PLAINTEXT"))
        kept = {name: value for name, value in options.items() if name not in _OWN_LOGIN}
        self._options = {
            **kept,
            "client.id": "tidelog-console-login",
            "security.protocol": protocol if protocol.startswith("SASL") else f"SASL_{protocol}",
            "sasl.mechanism": mechanism,
        }
        self._now_s = now_s
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._failed: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}
        """By user, with the number of tries that are under way."""

    async def check(self, user: str, password: str) -> None:
        """Return if the cluster takes the password; raises a refusal otherwise."""
        self._require_patience(user)
        options = {**self._options, "sasl.username": user, "sasl.password": password}
        async with self._turn(user), self._gate:
            self._require_patience(user)  # others may have failed by now
            try:
                async with AsyncAdmin(options) as admin:
                    await admin.cluster.connect()
            except AuthenticationError:
                self._note_failure(user)
                raise Refusal("wrong user name or password", 401, "LOGIN_FAILED") from None
        self._failed.pop(user, None)

    @asynccontextmanager
    async def _turn(self, user: str) -> AsyncIterator[None]:
        """One try of a user after another; too many at once are refused."""
        lock, tries = self._turns.get(user, (asyncio.Lock(), 0))
        if tries >= _WAITING:
            raise Refusal("too many concurrent logins of this user: try again in a moment", 429, "TOO_MANY")
        self._turns[user] = lock, tries + 1
        try:
            async with lock:
                yield
        finally:
            lock, tries = self._turns.pop(user)
            if tries > 1:
                self._turns[user] = lock, tries - 1

    def _require_patience(self, user: str) -> None:
        tries, last_s = self._failed.get(user, (0, 0.0))
        if tries < _FREE_TRIES:
            return
        since_s = self._now_s() - last_s
        if since_s > _REMEMBERED_S:
            del self._failed[user]
            return
        wait_s = min(2.0 ** min(tries - _FREE_TRIES, _DOUBLINGS), _LONGEST_WAIT_S)
        if since_s < wait_s:
            raise Refusal(
                f"too many failed logins of this user: try again in {wait_s - since_s:.0f} s", 429, "TOO_MANY"
            )

    def _note_failure(self, user: str) -> None:
        tries, _ = self._failed.pop(user, (0, 0.0))
        self._failed[user] = tries + 1, self._now_s()
        while len(self._failed) > _REMEMBERED:
            self._failed.popitem(last=False)
