"""Reads the broker as any Kafka client may: how far topics are, how far pipelines are, what came out.

Input topics are counted by their end offsets. Output topics are read (read_committed), because their logs
hold transaction markers too, which are no results. A pipeline's lag is what its consumer group has still to
read; before its first commit, everything.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from tidelog.client import AsyncAdmin, AsyncConsumer, ClientError, OffsetSpec
from tidelog.errors import KafkaError
from tidelog.ids import TopicPartition
from tidelog_rewards.demo.results import Results
from tidelog_rewards.demo.view import View, Watched

INTERVAL_S = 1.0
_POLL_S = 0.5


class Observer:
    """Keeps the view's figures of topics and groups up to date until it is cancelled."""

    def __init__(self, view: View, results: Results, watched: Mapping[str, Watched]) -> None:
        """``watched`` may still be empty: it is looked at each time."""
        self._view = view
        self._results = results
        self._watched = watched
        self._read: Counter[str] = Counter()

    async def run(self, bootstrap: str, partitions: Sequence[TopicPartition]) -> None:
        """Watch ``partitions``: those of all input and output topics."""
        read = [each for each in partitions if each.topic in self._view.outputs]
        counted = [each for each in partitions if each.topic in self._view.inputs]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._count(bootstrap, counted))
            tasks.create_task(self._follow(bootstrap, read))

    async def _count(self, bootstrap: str, partitions: Sequence[TopicPartition]) -> None:
        async with AsyncAdmin(bootstrap_servers=bootstrap, client_id="tidelog-demo") as admin:
            while True:
                try:
                    await self._count_once(admin, partitions)
                except (ClientError, KafkaError) as error:
                    self._view.notes[:] = [f"the broker does not answer: {error}"]
                await asyncio.sleep(INTERVAL_S)

    async def _count_once(self, admin: AsyncAdmin, partitions: Sequence[TopicPartition]) -> None:
        answers = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
        ends = {partition: max(answer.offset, 0) for partition, answer in answers.items()}
        groups = [each.group for each in self._watched.values()]
        committed = await admin.list_group_offsets(groups) if groups else {}
        now = time.monotonic()
        view = self._view
        by_topic: Counter[str] = Counter()
        for partition, end in ends.items():
            by_topic[partition.topic] += end
        for topic, flow in view.inputs.items():
            flow.sample(by_topic[topic], now)
        view.events_in.sample(by_topic.total(), now)
        for name, each in self._watched.items():
            done = committed[each.group].offsets if each.group in committed else {}
            lag = 0
            for partition, end in ends.items():
                if partition.topic in each.inputs:
                    lag += max(end - (max(done[partition].offset, 0) if partition in done else 0), 0)
            view.pipelines[name].lag = lag
            view.pipelines[name].lags.append(lag)
        for topic, flow in view.outputs.items():
            flow.sample(self._read[topic], now)
        view.records_out.sample(self._read.total(), now)
        self._results.refresh()

    async def _follow(self, bootstrap: str, partitions: Sequence[TopicPartition]) -> None:
        async with AsyncConsumer(
            bootstrap_servers=bootstrap,
            client_id="tidelog-demo",
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=2000,
        ) as consumer:
            consumer.assign(partitions)
            while True:
                records = await consumer.poll(_POLL_S)
                for record in records:
                    self._read[record.topic] += 1
                    self._results.take(record)
