"""Delegation tokens: made by those who are known, good for a login as their owner until they end."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.memory_zookeeper import MemorySession, MemoryZooKeeper
from tests.rigs.raw_client import RawClient
from tests.rigs.sasl_broker import OPEN, authenticate, log_in, port_of, sasl_broker, shake_hands
from tests.rigs.waiting import until, wait_until

from tidelog.broker.access.authentication import delegation_tokens
from tidelog.broker.access.authentication.delegation_tokens import DelegationTokens
from tidelog.client._network.security.scram import scram
from tidelog.config.broker_config import BrokerConfig
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.cluster_feed import ClusterFeed
from tidelog.metadata.embedded.embedded_store import EmbeddedStore
from tidelog.metadata.store import Create, Op, Result, SessionExpired, ensure_path
from tidelog.metadata.znodes import znodes
from tidelog.metadata.znodes.token_znodes import TOKEN_CHANGE_PREFIX, decode_token, encode_token, token_path
from tidelog.security.delegation_token import DelegationToken, token_credential, token_hmac
from tidelog.security.principal import Principal
from tidelog.security.sasl.scram_credential import ScramCredential, ScramMechanism
from tidelog.testing.broker_thread import BrokerThread
from tidelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
)
from tidelog.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from tidelog.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from tidelog.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from tidelog.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateResponse

DAY_MS = 86_400_000
ALICE = Principal("alice")
FAST = {"connection_failed_authentication_delay_ms": "10"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with sasl_broker(
        tmp_path_factory.mktemp("tokens"), delegation_token_secret_key="brokers-only", **FAST
    ) as broker:
        yield broker


def known(broker: BrokerThread, name: str) -> RawClient:
    client = RawClient("127.0.0.1", port_of(broker))
    assert log_in(client, "PLAIN", name, f"{name}-secret").error_code == ErrorCode.NONE
    return client


@pytest.fixture
def alice(broker: BrokerThread) -> Iterator[RawClient]:
    with known(broker, "alice") as client:
        yield client


@pytest.fixture
def bob(broker: BrokerThread) -> Iterator[RawClient]:
    with known(broker, "bob") as client:
        yield client


def create(
    client: RawClient, lifetime_ms: int = -1, renewer: str = "", owner: str | None = None
) -> CreateDelegationTokenResponse:
    request = CreateDelegationTokenRequest(
        owner_principal_type="User" if owner else None,
        owner_principal_name=owner,
        renewers=[CreatableRenewers(principal_type="User", principal_name=renewer)] if renewer else [],
        max_lifetime_ms=lifetime_ms,
    )
    return client.ask(3, request, CreateDelegationTokenResponse)


def renew(client: RawClient, mac: bytes, period_ms: int) -> RenewDelegationTokenResponse:
    request = RenewDelegationTokenRequest(hmac=mac, renew_period_ms=period_ms)
    return client.ask(2, request, RenewDelegationTokenResponse)


def expire(client: RawClient, mac: bytes, period_ms: int) -> ExpireDelegationTokenResponse:
    request = ExpireDelegationTokenRequest(hmac=mac, expiry_time_period_ms=period_ms)
    return client.ask(2, request, ExpireDelegationTokenResponse)


def described(client: RawClient, *owners: str) -> set[str]:
    asked = [DescribeDelegationTokenOwner(principal_type="User", principal_name=each) for each in owners]
    response = client.ask(
        3, DescribeDelegationTokenRequest(owners=asked or None), DescribeDelegationTokenResponse
    )
    assert response.error_code == ErrorCode.NONE
    return {each.token_id for each in response.tokens}


def log_in_by(
    client: RawClient, token_id: str, mac: bytes, mechanism: str = "SCRAM-SHA-256", *, tokenauth: bool = True
) -> SaslAuthenticateResponse:
    shake_hands(client, mechanism)
    password = base64.b64encode(mac).decode()
    dialogue = scram(mechanism, token_id, password, tokenauth=tokenauth)
    message = next(dialogue)
    while True:
        response = authenticate(client, message)
        if response.error_code:
            return response
        try:
            message = dialogue.send(bytes(response.auth_bytes))
        except StopIteration:
            return response


def is_good(broker: BrokerThread, token_id: str, mac: bytes, *, tokenauth: bool = True) -> bool:
    with RawClient("127.0.0.1", port_of(broker)) as client:
        return log_in_by(client, token_id, mac, tokenauth=tokenauth).error_code == ErrorCode.NONE


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_who_has_a_token_logs_in_as_its_owner_until_it_ends(
    broker: BrokerThread, alice: RawClient, mechanism: str
) -> None:
    token = create(alice)
    assert token.error_code == ErrorCode.NONE
    assert (token.principal_name, token.token_requester_principal_name) == ("alice", "alice")
    assert token.expiry_timestamp_ms - token.issue_timestamp_ms == DAY_MS
    assert token.max_timestamp_ms - token.issue_timestamp_ms == 7 * DAY_MS
    with RawClient("127.0.0.1", port_of(broker)) as client:
        response = log_in_by(client, token.token_id, token.hmac, mechanism)
        assert response.error_code == ErrorCode.NONE
        assert 0 < response.session_lifetime_ms <= DAY_MS
        port = client.sock.getsockname()[1]
        session = broker.call(
            lambda each: next(one.session for one in each.network.connections if one.peer[1] == port)
        )
        assert (session.principal, session.by_token) == (Principal("alice"), True)


def test_forged_and_unannounced_tokens_are_refused(broker: BrokerThread, alice: RawClient) -> None:
    token = create(alice)
    assert not is_good(broker, token.token_id, b"x" * 64)
    assert not is_good(broker, "no-such-token", token.hmac)
    assert not is_good(broker, token.token_id, token.hmac, tokenauth=False)


def test_tokens_are_not_for_the_unknown_nor_for_those_known_by_one(
    broker: BrokerThread, alice: RawClient
) -> None:
    token = create(alice)
    with RawClient("127.0.0.1", port_of(broker, OPEN)) as unknown:
        assert create(unknown).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert renew(unknown, token.hmac, -1).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    with RawClient("127.0.0.1", port_of(broker)) as client:
        log_in_by(client, token.token_id, token.hmac)
        assert create(client).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        change = AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name="admin", mechanism=2)]
        )
        refused = client.ask(0, change, AlterUserScramCredentialsResponse)
        assert refused.results[0].error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_without_a_secret_there_are_no_tokens(tmp_path: Path) -> None:
    with sasl_broker(tmp_path, **FAST) as broker, known(broker, "alice") as client:
        assert create(client).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        assert renew(client, b"x", -1).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_nobody_makes_a_token_for_somebody_else(alice: RawClient) -> None:
    assert create(alice, owner="bob").error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    request = CreateDelegationTokenRequest(
        owner_principal_name=None,
        owner_principal_type=None,
        renewers=[CreatableRenewers(principal_type="Group", principal_name="x")],
    )
    refused = alice.ask(3, request, CreateDelegationTokenResponse)
    assert refused.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


@pytest.mark.parametrize(
    "renewers", [[""], ["bob", ""], [f"user-{each}" for each in range(50_000)]], ids=["none", "one", "many"]
)
def test_renewers_that_could_not_be_kept_are_refused(alice: RawClient, renewers: list[str]) -> None:
    request = CreateDelegationTokenRequest(
        owner_principal_name=None,
        owner_principal_type=None,
        renewers=[CreatableRenewers(principal_type="User", principal_name=each) for each in renewers],
    )
    assert alice.ask(3, request, CreateDelegationTokenResponse).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", ["\0", "a\nb", "*", "ü/..", "a,b%2F", "x" * 20_000])
def test_renewers_of_any_name_are_kept_and_shown_to_whoever_has_it(alice: RawClient, name: str) -> None:
    token = create(alice, renewer=name)
    assert token.error_code == ErrorCode.NONE
    assert token.token_id in described(alice, name)


def test_nobody_fills_the_metadata_with_tokens(tmp_path: Path) -> None:
    options = {"delegation_token_secret_key": "s", "tidelog_delegation_token_max_per_owner": "3", **FAST}
    with (
        sasl_broker(tmp_path, **options) as broker,
        known(broker, "alice") as alice,
        known(broker, "bob") as bob,
    ):
        assert create(alice, lifetime_ms=300).error_code == ErrorCode.NONE
        first = create(alice)
        assert create(alice).error_code == ErrorCode.NONE
        # The one that is over makes room, though nobody has removed it yet.
        wait_until(lambda: create(alice).error_code == ErrorCode.NONE)
        assert create(alice).error_code == ErrorCode.POLICY_VIOLATION
        assert create(bob).error_code == ErrorCode.NONE
        assert expire(alice, first.hmac, -1).error_code == ErrorCode.NONE
        assert create(alice).error_code == ErrorCode.NONE


def test_a_token_that_cannot_be_read_stops_no_broker(tmp_path: Path) -> None:
    async def write() -> None:
        store = EmbeddedStore(tmp_path)
        await ensure_path(store, "/delegation_token/tokens")
        for name, raw in (("torn", b"{"), ("nobodys", b'{"owner":"User%3A"}')):
            await store.create(token_path(name), raw)
        await store.close()

    asyncio.run(write())
    with sasl_broker(tmp_path, delegation_token_secret_key="s", **FAST) as broker:
        assert not is_good(broker, "torn", token_hmac("s", "torn"))
        with known(broker, "alice") as client:
            assert create(client).error_code == ErrorCode.NONE
            assert len(described(client)) == 1


def test_only_owners_and_renewers_change_a_token(alice: RawClient, bob: RawClient) -> None:
    own, shared = create(alice), create(alice, renewer="bob")
    assert renew(bob, own.hmac, 5000).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert expire(bob, own.hmac, -1).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert renew(bob, shared.hmac, 5000).error_code == ErrorCode.NONE
    assert renew(alice, b"x" * 64, 5000).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    later = renew(alice, own.hmac, 100 * DAY_MS)
    assert later.expiry_timestamp_ms == own.max_timestamp_ms, "no token outlives its longest life"


def test_tokens_are_shown_to_owners_and_renewers_alone(alice: RawClient, bob: RawClient) -> None:
    own, shared = create(alice), create(alice, renewer="bob")
    assert {own.token_id, shared.token_id} <= described(alice)
    assert own.token_id not in described(bob)
    assert shared.token_id in described(bob)
    assert shared.token_id in described(bob, "alice")
    assert shared.token_id in described(bob, "bob"), "renewers count as owners here, as in Kafka"
    assert shared.token_id not in described(bob, "carol")
    assert own.token_id not in described(bob, "alice")


def test_an_ended_token_is_good_for_nothing(broker: BrokerThread, alice: RawClient) -> None:
    token = create(alice)
    assert expire(alice, token.hmac, -1).error_code == ErrorCode.NONE
    assert not is_good(broker, token.token_id, token.hmac)
    assert renew(alice, token.hmac, -1).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    over = create(alice, lifetime_ms=1)
    while renew(alice, over.hmac, -1).error_code == ErrorCode.NONE:
        pass
    assert renew(alice, over.hmac, -1).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert not is_good(broker, over.token_id, over.hmac), "not swept yet, and over all the same"


def test_tokens_that_are_over_are_removed_by_themselves(tmp_path: Path) -> None:
    with (
        sasl_broker(
            tmp_path,
            delegation_token_secret_key="s",
            delegation_token_expiry_check_interval_ms="20",
            **FAST,
        ) as broker,
        known(broker, "alice") as client,
    ):
        token = create(client, lifetime_ms=200)
        while token.token_id in broker.call(lambda each: set(each.image.delegation_tokens)):
            pass
        assert renew(client, token.hmac, -1).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_tokens_survive_a_restart_and_their_proof_is_not_kept(tmp_path: Path) -> None:
    options = {"delegation_token_secret_key": "brokers-only", **FAST}
    with sasl_broker(tmp_path, **options) as broker, known(broker, "alice") as client:
        token = create(client, renewer="bob")
    with sasl_broker(tmp_path, **options) as broker:
        assert is_good(broker, token.token_id, token.hmac)

    async def read() -> bytes:
        store = EmbeddedStore(tmp_path)
        raw, _ = await store.get(f"/delegation_token/tokens/{token.token_id}")
        await store.close()
        return raw

    raw = asyncio.run(read())
    assert json.loads(raw) == {
        "version": 3,
        "owner": "User%3Aalice",
        "tokenRequester": "User%3Aalice",
        "renewers": ["User%3Abob"],
        "issueTimestamp": token.issue_timestamp_ms,
        "maxTimestamp": token.max_timestamp_ms,
        "expiryTimestamp": token.expiry_timestamp_ms,
        "tokenId": token.token_id,
    }
    assert base64.b64encode(token.hmac) not in raw


def test_nodes_of_older_versions_are_read() -> None:
    token = DelegationToken("id", Principal("a,b"), Principal("a,b"), (), 1, 3, 2)
    assert decode_token("id", encode_token(token)) == token
    old = json.loads(encode_token(token))
    del old["tokenRequester"]
    assert decode_token("id", json.dumps({**old, "version": 1}).encode()) == token


def test_a_token_is_hashed_once_and_never_on_the_loop(
    broker: BrokerThread, alice: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed_by: list[str] = []

    def counted(mechanism: ScramMechanism, mac: bytes, salt: bytes) -> ScramCredential:
        hashed_by.append(threading.current_thread().name)
        return token_credential(mechanism, mac, salt)

    monkeypatch.setattr(delegation_tokens, "token_credential", counted)
    token = create(alice)
    with ThreadPoolExecutor(8) as crowd:
        assert all(crowd.map(lambda _: is_good(broker, token.token_id, token.hmac), range(8)))
    assert is_good(broker, token.token_id, token.hmac)
    assert len(hashed_by) == 1
    assert hashed_by[0].startswith("tidelog-login")
    assert not is_good(broker, "no-such-token", token.hmac)
    assert len(hashed_by) == 1, "and for tokens that nobody has nothing is hashed"


def test_one_of_thousands_is_found_without_working_out_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(_write_tokens(tmp_path, 1000))
    worked_out: list[str] = []

    def counted(secret: str, token_id: str) -> bytes:
        worked_out.append(token_id)
        return token_hmac(secret, token_id)

    monkeypatch.setattr(delegation_tokens, "token_hmac", counted)
    with (
        sasl_broker(tmp_path, delegation_token_secret_key="s", **FAST) as broker,
        known(broker, "alice") as client,
    ):
        assert sorted(worked_out) == sorted(f"token-{each}" for each in range(1000)), (
            "once each, at the start"
        )
        worked_out.clear()
        mac = token_hmac("s", "token-234")
        assert renew(client, mac, 5000).error_code == ErrorCode.NONE
        assert expire(client, mac, 4000).error_code == ErrorCode.NONE
        assert renew(client, b"x" * 64, 5000).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert len(described(client)) == 1000
        assert is_good(broker, "token-234", mac)
        assert worked_out == []
        assert expire(client, mac, -1).error_code == ErrorCode.NONE
        assert renew(client, mac, 5000).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        new = create(client)
        assert worked_out == [new.token_id]


async def _write_tokens(data_dir: Path, count: int) -> None:
    store = EmbeddedStore(data_dir)
    now_ms = int(time.time() * 1000)
    await ensure_path(store, "/delegation_token/tokens")
    for each in range(count):
        token = DelegationToken(
            f"token-{each}",
            Principal("alice"),
            Principal("alice"),
            (),
            now_ms,
            now_ms + DAY_MS,
            now_ms + DAY_MS,
        )
        await store.create(token_path(token.id), encode_token(token))
    await store.close()


# Several brokers


class Cluster:
    """Two brokers, each with the tokens that it knows of."""

    def __init__(self) -> None:
        self.zookeeper = MemoryZooKeeper()
        self.clock = ManualClock()
        self.stores: list[MemorySession] = []
        self.brokers: list[DelegationTokens] = []
        self.feeds: list[ClusterFeed] = []

    async def start(self) -> None:
        config = BrokerConfig({"broker.id": "1", "delegation.token.secret.key": "brokers-only"})
        for _ in range(2):
            store = self.zookeeper.session()
            await ensure_path(store, znodes.CONFIG_CHANGES)
            feed = await ClusterFeed.start(store, self.clock)
            self.stores.append(store)
            self.feeds.append(feed)
            self.brokers.append(DelegationTokens(config, store, feed, self.clock))

    async def create(self) -> tuple[DelegationToken, bytes]:
        """A token of Alice's that both brokers know."""
        token = await self.brokers[0].create(ALICE, ALICE, (), -1)
        await until(lambda: all(token.id in each.image.delegation_tokens for each in self.feeds))
        return token, token_hmac("brokers-only", token.id)

    def is_stored(self, token: DelegationToken) -> bool:
        return self.zookeeper.tree.find(token_path(token.id)) is not None


def in_a_cluster(test: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.start()
        await test(cluster)
        for feed in cluster.feeds:
            await feed.close()

    asyncio.run(main())


@pytest.mark.parametrize("change", ["renew", "expire"])
def test_a_token_that_another_broker_has_removed_does_not_come_back(change: str) -> None:
    async def test(cluster: Cluster) -> None:
        token, mac = await cluster.create()
        # The other broker has not heard of it yet.
        await cluster.stores[0].delete(token_path(token.id))
        with pytest.raises(KafkaError) as refused:
            await getattr(cluster.brokers[1], change)(ALICE, mac, 60_000)
        assert refused.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert not cluster.is_stored(token)

    in_a_cluster(test)


def test_a_token_that_has_ended_by_another_broker_is_not_renewed() -> None:
    async def test(cluster: Cluster) -> None:
        token, mac = await cluster.create()
        ended = replace(token, expires_ms=token.issued_ms - 1)
        await cluster.stores[0].set(token_path(token.id), encode_token(ended))
        with pytest.raises(KafkaError) as refused:
            await cluster.brokers[1].renew(ALICE, mac, 60_000)
        assert refused.value.code is ErrorCode.DELEGATION_TOKEN_EXPIRED

    in_a_cluster(test)


def test_a_token_goes_together_with_the_notice_of_it_or_stays() -> None:
    async def test(cluster: Cluster) -> None:
        token, mac = await cluster.create()
        store = cluster.stores[0]
        real = store.multi

        async def failing(ops: Sequence[Op]) -> list[Result]:
            if any(isinstance(op, Create) and op.path == TOKEN_CHANGE_PREFIX for op in ops):
                raise SessionExpired(TOKEN_CHANGE_PREFIX)
            return await real(ops)

        store.multi = failing  # type: ignore[method-assign]
        with pytest.raises(SessionExpired):
            await cluster.brokers[0].expire(ALICE, mac, -1)
        store.multi = real  # type: ignore[method-assign]
        await cluster.brokers[0].expire(ALICE, mac, -1)
        assert not cluster.is_stored(token)
        await until(lambda: token.id not in cluster.feeds[1].image.delegation_tokens)

    in_a_cluster(test)
