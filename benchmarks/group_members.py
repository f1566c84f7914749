"""Members of many groups in one process: `python -m benchmarks.group_members PORT GROUPS MEMBERS`.

Each member has a connection of its own, joins its group the classic way and sends a heartbeat every three
seconds, Kafka's default. Says `ready` when all groups are stable, goes on until its input ends, then says how
many heartbeats were answered and how many with an error. A process of its own, so that whoever measures is
not disturbed by it.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from tidelog.errors import ErrorCode
from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.codec import decode
from tidelog.wire.headers import RequestHeader, encode_request, parse_response_header
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tidelog.wire.schema import Payload

HEARTBEAT_S = 3.0
VERSIONS = {ApiKey.JOIN_GROUP: 9, ApiKey.SYNC_GROUP: 5, ApiKey.HEARTBEAT: 4}
SESSION_MS, REBALANCE_MS = 45_000, 60_000
AT_ONCE = 200
MOST_ROUNDS = 20


class Member:
    """One member of one group."""

    def __init__(self, port: int, group_id: str) -> None:
        self.port = port
        self.group_id = group_id
        self.member_id = ""
        self.generation = -1
        self.heartbeats = 0
        self.errors = 0

    async def connect(self, slots: asyncio.Semaphore) -> None:
        async with slots:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)

    async def join(self) -> None:
        """Join and sync until the group is stable with this member in it."""
        while True:
            joined = await self._ask(ApiKey.JOIN_GROUP, self._join_request())
            self.member_id = joined.member_id or self.member_id
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                continue
            if joined.error_code:
                await asyncio.sleep(0.1)
                continue
            self.generation = joined.generation_id
            leads = joined.leader == self.member_id
            synced = await self._ask(ApiKey.SYNC_GROUP, self._sync_request(joined.members if leads else []))
            if not synced.error_code:
                return

    async def live(self, offset_s: float) -> None:
        """Heartbeats for ever."""
        await asyncio.sleep(offset_s)
        while True:
            request = HeartbeatRequest(
                group_id=self.group_id, generation_id=self.generation, member_id=self.member_id
            )
            response = await self._ask(ApiKey.HEARTBEAT, request)
            self.heartbeats += 1
            if response.error_code:
                # Somebody has come after this member had its assignment.
                self.errors += 1
                await self.join()
            await asyncio.sleep(HEARTBEAT_S)

    def _join_request(self) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="benchmark",
            protocols=[JoinGroupRequestProtocol(name="none", metadata=b"")],
        )

    def _sync_request(self, members: list[object]) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="benchmark",
            protocol_name="none",
            assignments=[
                SyncGroupRequestAssignment(member_id=each.member_id, assignment=b"x")  # type: ignore[attr-defined]
                for each in members
            ],
        )

    async def _ask(self, key: ApiKey, request: Payload) -> Any:
        version = VERSIONS[key]
        self.writer.write(encode_request(RequestHeader(key, version, 1, "benchmark"), request))
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        answer = await self.reader.readexactly(size)
        _, pos = parse_response_header(key, version, answer)
        return decode(API_TABLE[key].response, version, answer, pos)[0]


async def main(port: int, groups: int, members: int) -> None:
    everybody = [Member(port, f"group-{group}") for group in range(groups) for _ in range(members)]
    slots = asyncio.Semaphore(AT_ONCE)
    await asyncio.gather(*(member.connect(slots) for member in everybody))
    await asyncio.gather(*(member.join() for member in everybody))
    step_s = HEARTBEAT_S / len(everybody)
    lives = [asyncio.ensure_future(member.live(n * step_s)) for n, member in enumerate(everybody)]
    for _ in range(MOST_ROUNDS):
        # Until one is without errors, so that whatever came with the joins is over.
        for member in everybody:
            member.heartbeats = member.errors = 0
        await asyncio.sleep(2 * HEARTBEAT_S)
        if all(member.heartbeats and not member.errors for member in everybody):
            break
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for life in lives:
        life.cancel()
    print(sum(member.heartbeats for member in everybody), sum(member.errors for member in everybody))


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:4])))
