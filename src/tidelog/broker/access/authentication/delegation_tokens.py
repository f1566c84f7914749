"""The delegation tokens of a cluster: made, renewed, ended, looked up for logins.

They are kept in the metadata, so that every broker knows them, and without what proves them: that is worked
out from ``delegation.token.secret.key``. Where it is not set there are no tokens. Tokens that are over are
removed every ``delegation.token.expiry.check.interval.ms`` by every broker; until then nobody logs in by them
either.

What proves a token is worked out when it comes to be known, so that it is found by a look-up however many
there are; what a login by it needs takes milliseconds to hash, and is hashed in a thread, once, when the
first one logs in.

Kafka's rules, but for one: without an authorizer Kafka shows every token to everybody. Here a token is shown
to its owner, to who asked for it and to those who may renew it, and nobody makes one for somebody else,
unless rules allow it.
Used by the handlers of the four requests and, for logins, by ``credentials``.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from tidelog.broker.network.rate_limited_log import RateLimitedLog
from tidelog.clock import Clock
from tidelog.config.broker_config import BrokerConfig
from tidelog.errors import ErrorCode, KafkaError, StorageError
from tidelog.ids import random_uuid, uuid_to_text
from tidelog.metadata.feed import Feed, ImageDelta
from tidelog.metadata.store import (
    BadVersion,
    Create,
    Delete,
    MetadataStore,
    NoNode,
    Set,
    StoreError,
    ensure_path,
    parent_of,
)
from tidelog.metadata.znodes import token_znodes
from tidelog.security.delegation_token import (
    DelegationToken,
    token_credential,
    token_hmac,
    token_login,
)
from tidelog.security.principal import ANONYMOUS, USER, Principal
from tidelog.security.sasl.scram import ScramLogin
from tidelog.security.sasl.scram_credential import ScramCredential, ScramMechanism
from tidelog.security.session import Session

logger = logging.getLogger(__name__)

# Everybody who has logged in may make tokens, which all brokers keep in memory.
_MAX_NODE_BYTES = 64 * 1024
_TRIES = 10
_MOST_PER_OWNER = "tidelog.delegation.token.max.per.owner"


class DelegationTokens:
    """All tokens, as one broker knows them."""

    def __init__(self, config: BrokerConfig, store: MetadataStore, feed: Feed, clock: Clock) -> None:
        self._config = config
        self._store = store
        self._feed = feed
        self._clock = clock
        self._secret = config.optional_str("delegation.token.secret.key") or None
        self._macs: dict[str, bytes] = {}
        # A dictionary's look-up tells nothing of bytes that are nearly right: its hashes are keyed.
        self._ids: dict[bytes, str] = {}
        self._credentials: dict[tuple[ScramMechanism, str], _Hashed] = {}
        self._being_made: Counter[Principal] = Counter()
        self._complaints = RateLimitedLog(logger, clock)
        self._sweeping: asyncio.Task[None] | None = None
        self._unsubscribe = feed.subscribe(self._on_change)
        for token_id in feed.image.delegation_tokens:
            self._learn(token_id)

    def start(self) -> None:
        """Remove tokens that are over, from time to time."""
        if self._secret is not None:
            self._sweeping = asyncio.get_running_loop().create_task(self._sweep_for_ever())

    def close(self) -> None:
        """Remove nothing any more."""
        self._unsubscribe()
        if self._sweeping is not None:
            self._sweeping.cancel()

    # Requests

    def check_allowed(self, session: Session) -> None:
        """Refuse those whom tokens are not for: the unknown, and those who are known by a token."""
        if session.principal == ANONYMOUS or session.by_token or session.security_protocol == "PLAINTEXT":
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
        if self._secret is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)

    async def create(
        self, requester: Principal, owner: Principal, renewers: Iterable[Principal], max_lifetime_ms: int
    ) -> DelegationToken:
        """A new token of ``owner``; whether ``requester`` may ask for it has been decided."""
        chosen = tuple(renewers)
        if any(each.type != USER for each in (owner, *chosen)):
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        if not all(each.name for each in chosen):
            # Kafka writes down nobody's name, and cannot read it afterwards.
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a renewer without a name: name a user, or nobody")
        now_ms = self._clock.time_ms()
        longest_ms = self._config.int("delegation.token.max.lifetime.ms")
        max_ms = now_ms + (longest_ms if max_lifetime_ms <= 0 else min(max_lifetime_ms, longest_ms))
        expires_ms = min(max_ms, now_ms + self._config.int("delegation.token.expiry.time.ms"))
        token = DelegationToken(
            uuid_to_text(random_uuid()), owner, requester, chosen, now_ms, max_ms, expires_ms
        )
        if len(token_znodes.encode_token(token)) > _MAX_NODE_BYTES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "too many renewers for one token: name fewer")
        await self._make_room(owner)
        self._being_made[owner] += 1
        try:
            await self._write_new(token)
        finally:
            self._being_made[owner] -= 1
            if not self._being_made[owner]:
                del self._being_made[owner]
        return token

    async def _make_room(self, owner: Principal) -> None:
        """Refuse somebody who has too many tokens, those that are over but not removed yet left out."""
        most = self._config.int(_MOST_PER_OWNER)
        if self._owned(owner) >= most:
            await self.remove_those_that_are_over()
        owned = self._owned(owner)
        if owned >= most:
            self._complaints.warn(
                "full", "%s gets no more delegation tokens: it has %d (%s)", owner, owned, _MOST_PER_OWNER
            )
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{owner} has {owned} tokens: expire some, or raise {_MOST_PER_OWNER}",
            )

    def _owned(self, owner: Principal) -> int:
        tokens = self._feed.image.delegation_tokens.values()
        return self._being_made[owner] + sum(each.owner == owner for each in tokens)

    async def change_end(self, session: Session, mac: bytes, period_ms: int, *, sooner: bool) -> int:
        """Renew or expire a token for its client, if tokens are for it; gives when it ends."""
        self.check_allowed(session)
        change = self.expire if sooner else self.renew
        return await change(session.principal, mac, period_ms)

    async def renew(self, principal: Principal, mac: bytes, period_ms: int) -> int:
        """Let a token end later; gives when."""
        token = self._of(mac, principal)
        now_ms = self._clock.time_ms()
        if token.is_over(now_ms):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        if period_ms < 0:
            period_ms = self._config.int("delegation.token.expiry.time.ms")
        return await self._end_at(token.id, now_ms, now_ms + period_ms)

    async def expire(self, principal: Principal, mac: bytes, period_ms: int) -> int:
        """Let a token end sooner, at once if the period is negative; gives when."""
        token = self._of(mac, principal)
        now_ms = self._clock.time_ms()
        if period_ms < 0:
            await self._remove(token.id)
            return now_ms
        if token.is_over(now_ms):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        return await self._end_at(token.id, now_ms, now_ms + period_ms)

    def visible_to(
        self,
        principal: Principal,
        owners: Iterable[Principal] | None,
        may_describe: Callable[[DelegationToken], bool] = lambda token: False,
    ) -> list[DelegationToken]:
        """The tokens that somebody may know of, others' where rules allow it.

        With ``owners`` only those that one of them owns, has asked for or may renew, as in Kafka.
        """
        wanted = None if owners is None else frozenset(owners)
        return [
            token
            for token in self._feed.image.delegation_tokens.values()
            if (wanted is None or not wanted.isdisjoint((token.owner, token.requester, *token.renewers)))
            and (token.may_change(principal) or may_describe(token))
        ]

    def hmac_of(self, token: DelegationToken) -> bytes:
        """What proves that one was given it."""
        return self._macs.get(token.id) or self._learn(token.id)

    def _learn(self, token_id: str) -> bytes:
        if self._secret is None:
            return b""
        mac = self._macs[token_id] = token_hmac(self._secret, token_id)
        self._ids[mac] = token_id
        return mac

    def _of(self, mac: bytes, principal: Principal) -> DelegationToken:
        found = self._feed.image.delegation_tokens.get(self._ids.get(mac, ""))
        if found is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        if not found.may_change(principal):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return found

    async def _end_at(self, token_id: str, now_ms: int, expires_ms: int) -> int:
        """Let a token end at another time, if it is still there and good.

        Other brokers may have removed or ended it without this one knowing yet, so the node decides; only
        ``create`` makes one.
        """
        path = token_znodes.token_path(token_id)
        for _ in range(_TRIES):
            try:
                raw, version = await self._store.get(path)
                stored = token_znodes.decode_token(token_id, raw)
                if stored.is_over(now_ms):
                    raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
                changed = replace(stored, expires_ms=min(expires_ms, stored.max_ms))
                await self._feed.write_token(token_id, Set(path, token_znodes.encode_token(changed), version))
            except NoNode:
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND) from None
            except BadVersion:
                continue
            except (StorageError, StoreError) as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            return changed.expires_ms
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "others change the token all the time: try again")

    async def _write_new(self, token: DelegationToken) -> None:
        path = token_znodes.token_path(token.id)
        try:
            await ensure_path(self._store, parent_of(path))
            await self._feed.write_token(token.id, Create(path, token_znodes.encode_token(token)))
        except (StorageError, StoreError) as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    async def _remove(self, token_id: str) -> None:
        try:
            await self._feed.write_token(token_id, Delete(token_znodes.token_path(token_id)))
        except NoNode:
            return

    # Logins

    def login(
        self, mechanism: ScramMechanism, token_id: str, salt: bytes
    ) -> ScramLogin | Callable[[], ScramLogin] | None:
        """The login by a token, whose salt is always the same; the first one is to be hashed in a thread."""
        token = self._feed.image.delegation_tokens.get(token_id)
        if token is None or self._secret is None or token.is_over(self._clock.time_ms()):
            return None
        hashed = self._credentials.get((mechanism, token_id))
        if hashed is None:
            hashed = self._credentials[mechanism, token_id] = _Hashed(mechanism, self.hmac_of(token), salt)
        if hashed.credential is None:
            return partial(_login_in_thread, token, hashed)
        return token_login(token, hashed.credential)

    def _on_change(self, delta: ImageDelta) -> None:
        for token_id in delta.delegation_tokens:
            if token_id in self._feed.image.delegation_tokens:
                if token_id not in self._macs:
                    self._learn(token_id)
                continue
            self._ids.pop(self._macs.pop(token_id, b""), None)
            for mechanism in ScramMechanism:
                self._credentials.pop((mechanism, token_id), None)

    # Ends

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._config.int("delegation.token.expiry.check.interval.ms") / 1000)
            await self.remove_those_that_are_over()

    async def remove_those_that_are_over(self) -> None:
        """Forget all tokens whose time is up."""
        now_ms = self._clock.time_ms()
        over = [each.id for each in self._feed.image.delegation_tokens.values() if each.is_over(now_ms)]
        for token_id in over:
            try:
                await self._remove(token_id)
            except (StorageError, StoreError) as error:
                logger.warning("A delegation token that is over could not be removed: %s", error)
                return


class _Hashed:
    """The credential of a token, once somebody has needed it."""

    __slots__ = ("_lock", "_mac", "_mechanism", "_salt", "credential")

    def __init__(self, mechanism: ScramMechanism, mac: bytes, salt: bytes) -> None:
        self._mechanism = mechanism
        self._mac = mac
        self._salt = salt
        self._lock = threading.Lock()
        self.credential: ScramCredential | None = None

    def work_out(self) -> ScramCredential:
        """Takes milliseconds for the first, and no longer for those who come meanwhile."""
        with self._lock:
            if self.credential is None:
                self.credential = token_credential(self._mechanism, self._mac, self._salt)
            return self.credential


def _login_in_thread(token: DelegationToken, hashed: _Hashed) -> ScramLogin:
    return token_login(token, hashed.work_out())
