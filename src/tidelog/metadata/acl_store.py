"""Keeps access rules in the metadata store, and the index of them in memory equal to it.

Everything is loaded by :meth:`AclStore.open`, before the broker serves anybody. A change is written under the
version that was read, again if somebody else was faster, and is in the index when the call returns. In a
cluster other brokers hear of it by a notice that is written with it, and this one of theirs; notices older
than a quarter of an hour are removed, as in Kafka. After a session that has expired, in which notices may
have come and gone, all rules are read anew. A rule that cannot be read stops the start: it might be one that
denies.

``on_change`` is called whenever the index changes. Made by ``broker/app``, used by
``broker/access/authorization`` and the handlers of CreateAcls and DeleteAcls.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from tidelog.clock import Clock
from tidelog.errors import StorageError
from tidelog.metadata.cluster_feed import NOTICE_AGE_MS
from tidelog.metadata.store import (
    BadVersion,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    Op,
    SessionState,
    Set,
    SharedStore,
    StoreError,
    ensure_path,
    parent_of,
)
from tidelog.metadata.znodes import acl_znodes
from tidelog.scheduling.yielding import yielding_every
from tidelog.security.acls.filters import AclFilter
from tidelog.security.acls.model import (
    STORED_PATTERN_TYPES,
    STORED_RESOURCE_TYPES,
    AclBinding,
    AclEntry,
    PatternType,
    ResourcePattern,
)
from tidelog.security.acls.rule_index import RuleIndex

logger = logging.getLogger(__name__)

_READS_AT_ONCE = 200
_BATCH_SIZE = 100
_LONG_BYTES = 64 * 1024
_MAX_TRIES = 16
_PAUSE_S = 0.1

Edit = Callable[[tuple[AclEntry, ...]], Sequence[AclEntry]]


class AclStore:
    """All access rules of a cluster; made with :meth:`open`."""

    def __init__(self, store: MetadataStore, shared: SharedStore | None, clock: Clock) -> None:
        self.rules = RuleIndex()
        self.on_change: Callable[[], None] = lambda: None
        self._store = store
        self._shared = shared
        self._clock = clock
        self._turn = asyncio.Lock()
        self._last_notice = dict.fromkeys(STORED_PATTERN_TYPES, "")
        self._seen_ms: dict[str, float] = {}
        self._stops: list[Callable[[], None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._expired = False

    @classmethod
    async def open(cls, store: MetadataStore, shared: SharedStore | None, clock: Clock) -> AclStore:
        """Load all rules, and follow them from now on; ``shared`` is the store if others write to it too."""
        acls = cls(store, shared, clock)
        for path in acl_znodes.parents():
            await ensure_path(store, path)
        for pattern_type in STORED_PATTERN_TYPES:
            notices = await store.children(acl_znodes.NOTICES[pattern_type])
            acls._last_notice[pattern_type] = notices[-1] if notices else ""
        await acls._load()
        if shared is not None:
            acls._follow(shared)
        return acls

    async def add(self, bindings: Iterable[AclBinding]) -> dict[ResourcePattern, StoreError | None]:
        """Add rules, those of each pattern at once; what is there already stays as it is."""
        by_pattern: dict[ResourcePattern, list[AclEntry]] = defaultdict(list)
        async for pattern, entry in yielding_every(_BATCH_SIZE, bindings):
            by_pattern[pattern].append(entry)
        outcomes: dict[ResourcePattern, StoreError | None] = {}
        async for pattern, entries in yielding_every(1, by_pattern.items()):
            outcomes[pattern] = await self._try(pattern, _added(entries), len(entries))
        return outcomes

    async def remove(self, wanted: Sequence[AclFilter]) -> list[dict[AclBinding, StoreError | None]]:
        """Remove the rules that each filter means; what became of each, by filter.

        A rule that several filters mean is told for the first.
        """
        removed: list[dict[AclBinding, StoreError | None]] = [{} for _ in wanted]
        doomed: dict[ResourcePattern, dict[AclBinding, int]] = defaultdict(dict)
        for position, each in enumerate(wanted):
            await asyncio.sleep(0)
            async for pattern in yielding_every(_BATCH_SIZE, self.rules.candidates(each)):
                for entry in self.rules.entries(pattern):
                    if each.matches_entry(entry):
                        doomed[pattern].setdefault(AclBinding(pattern, entry), position)
        async for pattern, positions in yielding_every(1, doomed.items()):
            gone = {binding.entry for binding in positions}
            error = await self._try(pattern, _without(gone), len(gone))
            for binding, position in positions.items():
                removed[position][binding] = error
        return removed

    async def caught_up(self) -> None:
        """Wait for what has been heard of."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """Stop following."""
        for stop in self._stops:
            stop()
        for task in self._tasks:
            task.cancel()
        await self.caught_up()

    # Writing

    async def _try(self, pattern: ResourcePattern, edit: Edit, count: int) -> StoreError | None:
        try:
            await self._update(pattern, edit, count)
        except StoreError as error:
            logger.error("The access rules of %s could not be changed: %s", pattern, error)
            return error
        return None

    async def _update(self, pattern: ResourcePattern, edit: Edit, count: int) -> None:
        """Change the rules of a pattern, by so many; many are worked on beside the loop."""
        path = acl_znodes.rules_path(pattern)
        async with self._turn:
            for _ in range(_MAX_TRIES):
                raw, version = await self._get(path)
                if count > _BATCH_SIZE or len(raw) > _LONG_BYTES:
                    edited = await asyncio.to_thread(_edited, path, raw, edit)
                else:
                    edited = _edited(path, raw, edit)
                new, data = edited
                try:
                    if data is not None:
                        await self._write(pattern, data, version)
                    break
                except (BadVersion, NodeExists, NoNode):
                    # Somebody else was faster, or has removed the node meanwhile.
                    await asyncio.sleep(_PAUSE_S)
            else:
                raise StoreError(path, f"metadata node {path} is being changed by others all the time")
            self._put(pattern, new)

    async def _write(self, pattern: ResourcePattern, data: bytes, version: int | None) -> None:
        """Change the node, or remove it if there is nothing to keep, and tell other brokers, all at once.

        A rule that was removed, but not told, would hold on other brokers: the next try finds nothing to
        remove, and nothing to tell.
        """
        path = acl_znodes.rules_path(pattern)
        ops: list[Op] = []
        if version is None:
            await ensure_path(self._store, parent_of(path))
            ops.append(Create(path, data))
        elif data:
            ops.append(Set(path, data, version))
        else:
            ops.append(Delete(path, version))
        if self._shared is not None:
            notice = acl_znodes.encode_notice(pattern)
            ops.append(Create(acl_znodes.notice_prefix(pattern), notice, sequential=True))
        await self._store.multi(ops)

    async def _get(self, path: str) -> tuple[bytes, int | None]:
        try:
            return await self._store.get(path)
        except NoNode:
            return b"", None

    def _put(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> None:
        if self.rules.put(pattern, entries):
            self.on_change()

    # Reading

    async def _load(self) -> None:
        """Read everything that can be read; then raises if there was anything else."""
        found: set[ResourcePattern] = set()
        unreadable: StorageError | None = None
        for pattern_type in STORED_PATTERN_TYPES:
            for kind in STORED_RESOURCE_TYPES:
                names = await self._store.children(acl_znodes.type_path(kind, pattern_type))
                for start in range(0, len(names), _READS_AT_ONCE):
                    some = [
                        ResourcePattern(kind, name, pattern_type)
                        for name in names[start : start + _READS_AT_ONCE]
                    ]
                    for failure in await asyncio.gather(*map(self._reread, some), return_exceptions=True):
                        if isinstance(failure, StorageError):
                            unreadable = unreadable or failure
                        elif failure is not None:
                            raise failure
                    found.update(some)
        for gone in set(self.rules.patterns()) - found:
            self._put(gone, ())
        if unreadable is not None:
            raise unreadable

    async def _reread(self, pattern: ResourcePattern) -> None:
        path = acl_znodes.rules_path(pattern)
        raw, _ = await self._get(path)
        self._put(pattern, acl_znodes.decode_rules(path, raw))

    # Hearing of others' changes

    def _follow(self, shared: SharedStore) -> None:
        for pattern_type, path in acl_znodes.NOTICES.items():

            def heard(pattern_type: PatternType = pattern_type) -> None:
                self._soon(partial(self._read_notices, pattern_type))

            self._stops.append(shared.watch_children(path, heard))
        self._stops.append(shared.on_session(self._session_changed))

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._expired = True
        elif state is SessionState.CONNECTED and self._expired:
            self._soon(self._load_again)

    async def _load_again(self) -> None:
        async with self._turn:
            await self._make_up()

    async def _make_up(self) -> None:
        """Read everything after a session that has expired; again with what is heard next, if that fails."""
        if not self._expired:
            return
        self._expired = False
        try:
            await self._load()
        except StorageError as error:
            # All others are known now; whoever hears of changes must not be kept from them.
            logger.error("Access rules cannot be read, and those known before stay in force: %s", error)
        except BaseException:
            self._expired = True
            raise

    async def _read_notices(self, pattern_type: PatternType) -> None:
        parent = acl_znodes.NOTICES[pattern_type]
        async with self._turn:
            await self._make_up()
            names = await self._store.children(parent)
            for name in names:
                if name > self._last_notice[pattern_type]:
                    await self._read_notice(f"{parent}/{name}")
                    self._last_notice[pattern_type] = name
            await self._remove_old([f"{parent}/{name}" for name in names], parent)

    async def _read_notice(self, path: str) -> None:
        try:
            raw, _ = await self._store.get(path)
            await self._reread(acl_znodes.decode_notice(path, raw))
        except NoNode:
            return
        except StorageError as error:
            logger.error("A notice of changed access rules is passed over: %s", error)

    async def _remove_old(self, paths: list[str], parent: str) -> None:
        now_ms = self._clock.monotonic_ms()
        others = {path: ms for path, ms in self._seen_ms.items() if parent_of(path) != parent}
        self._seen_ms = others | {path: self._seen_ms.get(path, now_ms) for path in paths}
        for path in paths:
            if now_ms - self._seen_ms[path] > NOTICE_AGE_MS:
                try:
                    await self._store.delete(path)
                except NoNode:
                    continue

    def _soon(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do something beside; it is not begun at all where everything ends before its turn."""
        task = asyncio.get_running_loop().create_task(_logged(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _edited(path: str, raw: bytes, edit: Edit) -> tuple[tuple[AclEntry, ...], bytes | None]:
    """The rules of a node after a change, and its data: empty if none is left, None if nothing changes."""
    old = acl_znodes.decode_rules(path, raw)
    new = tuple(dict.fromkeys(edit(old)))
    if new == old:
        return new, None
    return new, acl_znodes.encode_rules(new) if new else b""


def _added(entries: Sequence[AclEntry]) -> Edit:
    return lambda old: [*old, *entries]


def _without(gone: set[AclEntry]) -> Edit:
    return lambda old: [each for each in old if each not in gone]


async def _logged(work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except StoreError as error:
        # The watch is set again, and fires again, when ZooKeeper is back.
        logger.info("Access rules are not read now: %s", error)
    except StorageError as error:
        logger.error("Access rules cannot be read, and those known before stay in force: %s", error)
