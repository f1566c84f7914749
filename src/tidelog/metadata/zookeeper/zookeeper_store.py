"""The metadata store of a cluster: ZooKeeper, through kazoo.

kazoo has threads of its own; nothing here blocks the loop, and everything that callers see happens on the
loop. The semantics are those of :class:`~tidelog.metadata.store.SharedStore`:

- While the connection is away, operations wait for it to come back, as Kafka's do. They fail only with the
  session (:class:`SessionExpired`) or the store (:class:`StoreClosed`).
- A write whose answer was lost with the connection is sent again. If it is refused then, what is in the
  tree says whether the first one had arrived (``zookeeper_outcome``): that one counts. Sequential nodes
  alone may come twice.
- Servers close the connection of who sends them more than ``jute.maxbuffer``, a megabyte unless they are told
  otherwise. What is that large and has cost the connection ``_MAX_LOSSES`` times is given up
  (:class:`TooLargeError`), and nothing as large is sent again. A connection that ends in the middle of its
  login was not lost by what waits behind that.
- A connection that is lost is one line in the log, and one more when it is back. kazoo's own lines, one for
  each attempt, are not shown unless the level of ``tidelog.metadata.zookeeper.kazoo`` is lowered.
- Watches are ZooKeeper's one-shot ones, set again before the watcher is told, so that no change falls
  between.

Invariant: the order in which kazoo's answers and session events come in is the order in which callers hear
of them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionDropped,
    ConnectionLoss,
    KazooException,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.exceptions import ConnectionClosedError as KazooClosedError
from kazoo.protocol.states import KazooState, KeeperState, ZnodeStat

from tidelog.errors import TidelogError
from tidelog.metadata.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NodeStat,
    NoNode,
    NotEmpty,
    Op,
    Result,
    SessionExpired,
    SessionState,
    Set,
    StoreClosed,
    StoreError,
    TooLargeError,
    check_path,
    ensure_path,
)
from tidelog.metadata.zookeeper.outcome import outcome_of
from tidelog.metadata.zookeeper.security import OPEN, TlsHandler, ZooKeeperSecurity
from tidelog.metadata.zookeeper.watch import Watch
from tidelog.metrics.histogram import Histogram

logger = logging.getLogger(__name__)
_kazoo_log = logging.getLogger("tidelog.metadata.zookeeper.kazoo")
_kazoo_log.setLevel(logging.ERROR)

T = TypeVar("T")
_LOST = (ConnectionLoss, OperationTimeoutError)
# Below this every server takes it.
_LARGE_BYTES = 1_000_000
_MAX_LOSSES = 3
# Left to itself, kazoo doubles the pause up to an hour: ZooKeeper would be back, and brokers would not look.
_RECONNECT_S = 1.0
_RECONNECT = {"max_tries": -1, "max_delay": _RECONNECT_S}


class ZooKeeperUnreachableError(TidelogError):
    """No server of the ensemble answered in time."""


class ZooKeeperRefusedError(StoreError):
    """The ensemble does not take this broker for who it says it is."""

    def __init__(self, path: str) -> None:
        super().__init__(
            path,
            "ZooKeeper refuses the login of this broker: check user name and password in "
            "tidelog.zookeeper.jaas.config against the section Server of ZooKeeper's JAAS file",
        )


class ZooKeeperStore:
    """One session after the other with an ensemble; made with :meth:`connect`."""

    def __init__(self, connect: str, session_timeout_ms: int, security: ZooKeeperSecurity = OPEN) -> None:
        hosts, slash, chroot = connect.partition("/")
        self._hosts = hosts
        self._chroot = slash + chroot.strip("/") if chroot.strip("/") else ""
        self._loop = asyncio.get_running_loop()
        self._security = security
        self._session_timeout_s = session_timeout_ms / 1000
        self._client = KazooClient(
            hosts,
            timeout=self._session_timeout_s,
            logger=_kazoo_log,
            connection_retry=_RECONNECT,
            **security.client_arguments(hosts),
        )
        self._client.add_listener(self._state_changed)
        connection = self._client._connection
        connection._authenticate_with_sasl = partial(self._log_in, connection._authenticate_with_sasl)
        self._connected = asyncio.Event()
        self._session = 0
        self._generation = 0
        self._closed = False
        self._is_open = False
        self._refused = False
        self._reopening: asyncio.Task[None] | None = None
        self._cut_off_since_s: float | None = None
        """When the first of the logins was cut off that none has come through since."""
        self._logging_in = False
        """Until a login has come through: also between those that were cut off."""
        self._too_large: int | None = None
        """The least that was too large."""
        self._listeners: list[Callable[[SessionState], None]] = []
        self._watches: set[Watch] = set()
        self.latency_us = Histogram()
        """How long the ensemble took to answer."""
        self.disconnects = 0
        self.expiries = 0

    @classmethod
    async def connect(
        cls,
        connect: str,
        *,
        session_timeout_ms: int = 18_000,
        connection_timeout_ms: int | None = None,
        security: ZooKeeperSecurity = OPEN,
    ) -> ZooKeeperStore:
        """Open a session; ``connect`` is ``host:port,host:port/chroot``, whose chroot is made if it is
        missing."""
        store = cls(connect, session_timeout_ms, security)
        store._client.start_async()
        try:
            async with asyncio.timeout((connection_timeout_ms or session_timeout_ms) / 1000):
                await store._connected.wait()
                # kazoo says that it is connected before it has logged in; what is asked comes after that.
                await store.exists("/")
                if store._chroot:
                    await ensure_path(store, store._chroot)
                    store._client.chroot = store._chroot
                store._is_open = True
        except TimeoutError:
            await store.close()
            raise ZooKeeperUnreachableError(store._why_unreachable()) from None
        except BaseException:
            await store.close()
            raise
        return store

    def _why_unreachable(self) -> str:
        handler = self._client.handler
        if isinstance(handler, TlsHandler):
            why = handler.failure or "it ends connections once they are there"
            return (
                f"there is no TLS connection to ZooKeeper at {self._hosts}: {why}; check that it is up, that "
                "zookeeper.connect names its ports for TLS, zookeeper.ssl.truststore.location, and "
                "zookeeper.ssl.keystore.location if it asks for a certificate"
            )
        return f"no ZooKeeper server answers at {self._hosts}: start it, or change zookeeper.connect"

    # Reading

    async def get(self, path: str) -> tuple[bytes, int]:
        data, stat = await self._read(path, self._client.get_async)
        return data, stat.version

    async def get_with_stat(self, path: str) -> tuple[bytes, NodeStat]:
        data, stat = await self._read(path, self._client.get_async)
        return data, _stat(stat)

    async def stat(self, path: str) -> NodeStat | None:
        found = await self._read(path, self._client.exists_async)
        return None if found is None else _stat(found)

    async def exists(self, path: str) -> bool:
        return await self._read(path, self._client.exists_async) is not None

    async def sync(self, path: str) -> None:
        await self._read(path, self._client.sync_async)

    async def children(self, path: str) -> list[str]:
        return sorted(await self._read(path, self._client.get_children_async))

    # Writing

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        (result,) = await self._write([Create(path, data, ephemeral, sequential)])
        return str(result)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        (result,) = await self._write([Set(path, data, version)])
        assert isinstance(result, int)
        return result

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._write([Delete(path, version)])

    async def multi(self, ops: Sequence[Op]) -> list[Result]:
        return await self._write(ops) if ops else []

    # Watching

    def watch_node(self, path: str, on_change: Callable[[], None]) -> Callable[[], None]:
        return self._watch(path, on_change, of_children=False)

    def watch_children(self, path: str, on_change: Callable[[], None]) -> Callable[[], None]:
        return self._watch(path, on_change, of_children=True)

    def _watch(self, path: str, on_change: Callable[[], None], *, of_children: bool) -> Callable[[], None]:
        check_path(path)
        watch = Watch(path, on_change, of_children, self._loop, self._read_watched)
        self._watches.add(watch)
        watch.begin()

        def stop() -> None:
            self._watches.discard(watch)
            watch.stop()

        return stop

    async def _read_watched(self, path: str, of_children: bool, on_event: Callable[[Any], None]) -> None:
        """Set a watch; on the children of a node that is not there it is one for the node to come."""

        def exists(watched: str) -> Any:
            return self._client.exists_async(watched, watch=on_event)

        def children(watched: str) -> Any:
            return self._client.get_children_async(watched, watch=on_event)

        if not of_children:
            await self._read(path, exists)
            return
        while True:
            try:
                await self._read(path, children)
                return
            except NoNode:
                if await self._read(path, exists) is None:
                    return

    # The session

    @property
    def session_id(self) -> int:
        return self._session

    def on_session(self, listener: Callable[[SessionState], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def close(self) -> None:
        """End the session: its ephemeral nodes go at once."""
        if self._closed:
            return
        self._closed = True
        self._connected.set()
        for watch in self._watches:
            watch.stop()
        if self._reopening is not None:
            await self._reopening
        await self._loop.run_in_executor(None, self._end)

    def _end(self) -> None:
        self._client.stop()
        self._client.close()

    def _state_changed(self, state: str) -> None:
        """Runs in a thread of kazoo's, which must not be held up."""
        session = self._client.client_id[0] if self._client.client_id else 0
        if state == KazooState.LOST:
            # Asked here and not on the loop: a moment after the refusal kazoo is merely closed.
            if self._client.client_state == KeeperState.AUTH_FAILED and not self._is_open:
                # Kept here, too: who asks before the loop has heard of it finds the client closed, and must
                # know why.
                self._refused = True
            else:
                self._loop.call_soon_threadsafe(self._open_again)
        self._loop.call_soon_threadsafe(self._take_state, state, session)

    def _log_in(self, authenticate: Callable[[str, float], None], host: str, timeout_s: float) -> None:
        """What kazoo does, in a thread of its own, before it lets anybody use a connection.

        kazoo takes a connection that ends in the middle of a login for a refusal, which is how old servers
        refuse, and throws the session away; that lives on with its ephemeral nodes until ZooKeeper misses it.
        A broker that was let in before rather has a server that went away: it logs in again in the session
        that it has, as with Java's client. Every such attempt keeps the session alive, though, with all that
        others believe of this broker: where none comes through for as long as a session lives, it is a
        refusal after all.
        """
        self._logging_in = True
        try:
            authenticate(host, timeout_s)
        except AuthFailedError as error:
            if self._is_open and isinstance(error.__cause__, ConnectionDropped) and not self._is_cut_off():
                raise error.__cause__ from None
            raise
        self._logging_in = False
        self._cut_off_since_s = None

    def _is_cut_off(self) -> bool:
        """Whether logins have been cut off, this one too, for as long as a session lives."""
        now_s = time.monotonic()
        if self._cut_off_since_s is None:
            self._cut_off_since_s = now_s
        return now_s - self._cut_off_since_s >= self._session_timeout_s

    def _open_again(self) -> None:
        if not self._closed and (self._reopening is None or self._reopening.done()):
            self._reopening = self._loop.create_task(self._start_until_connected())

    async def _start_until_connected(self) -> None:
        """kazoo's thread ends for good when a login is refused, and with whatever it does not expect; before
        the next session is there it tells nobody."""
        while not self._closed and not self._client.connected:
            await asyncio.sleep(_RECONNECT_S)
            thread = self._client._connection._connection_routine
            if self._closed or (thread is not None and thread.is_alive()):
                continue
            logger.warning("ZooKeeper has refused a login, or failed in an unknown way; it is tried again")
            try:
                # It waits for kazoo's threads.
                await self._loop.run_in_executor(None, self._client.start_async)
            except Exception as error:
                logger.warning("There is no connection to ZooKeeper yet: %r", error)

    def _take_state(self, state: str, session: int) -> None:
        if self._closed:
            return
        match state:
            case KazooState.CONNECTED:
                self._session = session
                self._connected.set()
                told = SessionState.CONNECTED
            case KazooState.SUSPENDED:
                self._connected.clear()
                self.disconnects += 1
                told = SessionState.SUSPENDED
            case _:
                self._connected.clear()
                self._generation += 1
                self.expiries += 1
                told = SessionState.EXPIRED
                if self._refused:
                    # There will be no other session: whoever asks is told so.
                    self._connected.set()
        if told is SessionState.SUSPENDED:
            logger.warning(
                "The connection to ZooKeeper at %s is lost (session 0x%x), reconnecting",
                self._hosts,
                self._session,
            )
        else:
            logger.info("ZooKeeper session 0x%x is %s", self._session, told.value)
        for listener in tuple(self._listeners):
            listener(told)
        if told is SessionState.CONNECTED:
            # kazoo drops its watches with the connection: set them again, and have their owners look.
            for watch in tuple(self._watches):
                watch.begin()

    # Asking

    async def _read(self, path: str, ask: Callable[[str], Any]) -> Any:
        check_path(path)
        generation = self._generation
        size = len(path.encode())
        sent_losses = 0
        while True:
            self._check_size(path, size, sent_losses)
            try:
                return await self._ask(path, generation, lambda: ask(path))
            except _LOST:
                sent_losses += not self._logging_in

    async def _write(self, ops: Sequence[Op]) -> list[Result]:
        for op in ops:
            check_path(op.path)
        path = max(ops, key=_size).path
        generation = self._generation
        size = sum(map(_size, ops))
        losses = sent_losses = 0
        while True:
            self._check_size(path, size, sent_losses)
            try:
                results = await self._ask(path, generation, lambda: self._transaction(ops))
            except _LOST:
                # By now the next login may have begun: whether an answer was lost is not asked of it.
                losses += 1
                sent_losses += not self._logging_in
                continue
            try:
                return _results(ops, results)
            except StoreError:
                if not losses:
                    raise
                settled = await outcome_of(self, ops)
                if settled is None:
                    raise
                return settled

    def _check_size(self, path: str, size: int, sent_losses: int) -> None:
        """Refuse what is too large; ``sent_losses`` are the connections that it may have cost."""
        if size < _LARGE_BYTES:
            return
        if sent_losses >= _MAX_LOSSES:
            self._too_large = size if self._too_large is None else min(size, self._too_large)
        if self._too_large is not None and size >= self._too_large:
            raise TooLargeError(path, size)

    def _transaction(self, ops: Sequence[Op]) -> Any:
        transaction = self._client.transaction()
        for op in ops:
            match op:
                case Create(path, data, ephemeral, sequential):
                    acl = self._security.acl_of(path)
                    transaction.create(path, data, acl, ephemeral=ephemeral, sequence=sequential)
                case Set(path, data, version):
                    transaction.set_data(path, data, version)
                case Delete(path, version):
                    transaction.delete(path, version)
                case Check(path, version):
                    transaction.check(path, version)
        return transaction.commit_async()

    async def _ask(self, path: str, generation: int, ask: Callable[[], Any]) -> Any:
        """One exchange with the ensemble, begun once the connection is there."""
        await self._connected.wait()
        if self._closed:
            raise StoreClosed(path, "the connection to ZooKeeper was closed")
        if self._refused:
            raise ZooKeeperRefusedError(path)
        if generation != self._generation:
            raise SessionExpired(path)
        try:
            return await self._answer(ask())
        except KazooClosedError:  # before the next one, of which kazoo makes it a kind
            if self._refused:
                raise ZooKeeperRefusedError(path) from None
            if self._closed:
                raise StoreClosed(path, "the connection to ZooKeeper was closed") from None
            raise SessionExpired(path) from None
        except SessionExpiredError:
            raise SessionExpired(path) from None
        except AuthFailedError as error:
            if self._is_open:
                raise SessionExpired(path) from error
            raise ZooKeeperRefusedError(path) from error
        except _LOST:
            # Wait for the loop to hear of it, lest the next attempt meets the same dead connection.
            await asyncio.sleep(0.01)
            raise
        except KazooException as error:
            raise _store_error(error, path) from error

    def _answer(self, pending: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        began_s = time.monotonic()

        def done(result: Any) -> None:
            self.latency_us.add((time.monotonic() - began_s) * 1_000_000)
            self._loop.call_soon_threadsafe(_settle, future, result)

        pending.rawlink(done)
        return future


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if result.exception is not None:
        future.set_exception(result.exception)
    else:
        future.set_result(result.value)


def _size(op: Op) -> int:
    return len(op.path.encode()) + (len(op.data) if isinstance(op, Create | Set) else 0)


def _stat(stat: ZnodeStat) -> NodeStat:
    return NodeStat(stat.version, stat.czxid, stat.ephemeralOwner)


def _results(ops: Sequence[Op], answers: Sequence[Any]) -> list[Result]:
    """What a transaction gave; kazoo returns the exceptions of a refused one as if they were results."""
    for index, answer in enumerate(answers):
        if isinstance(answer, Exception) and not isinstance(answer, RolledBackError | RuntimeInconsistency):
            error = _store_error(answer, ops[index].path, ops[index])
            error.op_index = index
            raise error
    return [answer.version if isinstance(answer, ZnodeStat) else _plain(answer) for answer in answers]


def _plain(answer: Any) -> Result:
    return answer if isinstance(answer, str) else None


def _store_error(error: Exception, path: str, op: Op | None = None) -> StoreError:
    match error:
        case NoNodeError():
            return NoNode(path)
        case NodeExistsError():
            return NodeExists(path)
        case BadVersionError():
            return BadVersion(path, getattr(op, "version", ANY_VERSION))
        case NotEmptyError():
            return NotEmpty(path)
        case NoChildrenForEphemeralsError():
            return NoChildrenForEphemerals(path)
    return StoreError(path, f"ZooKeeper refuses what is asked of {path}: {error!r}")
