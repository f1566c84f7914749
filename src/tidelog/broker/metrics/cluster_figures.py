"""Figures of the cluster as one broker sees it: the controller, replicas that follow, ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tidelog.metadata.image import MetadataImage
from tidelog.metadata.znodes.znodes import NO_LEADER
from tidelog.metrics import catalog
from tidelog.metrics.histogram import Histogram
from tidelog.metrics.page import Page, labels
from tidelog.metrics.timing import timing

if TYPE_CHECKING:
    from tidelog.controller.cluster.context import ControllerContext
    from tidelog.controller.cluster.controller import ClusterController
    from tidelog.metadata.store import SharedStore
    from tidelog.replication.fetch_loop import FetchLoops

_SLICE = 200
_FETCHER = "Replica"


class _Tally:
    """What a controller counts."""

    def __init__(self) -> None:
        self.topics = 0
        self.partitions = 0
        self.offline = 0
        self.imbalance = 0
        self.brokers = 0
        self.deleting = 0
        self.replicas_deleting = 0


class ClusterView(NamedTuple):
    """What a broker of a cluster knows of it."""

    context: ControllerContext | None
    """The controller's, where this broker is it."""
    controller: ClusterController
    loops: FetchLoops
    store: SharedStore
    is_connected: bool


def alone(page: Page, image: MetadataImage) -> Iterator[str]:
    """A broker alone is the controller."""
    tally = _Tally()
    tally.topics = len(image.topics)
    tally.brokers = len(image.brokers)
    tally.deleting = len(image.deleting)
    for topic in list(image.topics.values()):
        tally.partitions += len(topic.partitions)
        for each in topic.partitions.values():
            tally.offline += each.leader == NO_LEADER or each.leader not in image.brokers
            tally.imbalance += each.leader != each.replicas[0]
        yield ""
    yield from _controller(page, tally, is_active=True)
    yield from page.family(catalog.UNCLEAN_ELECTIONS, [("", 0)])
    yield from page.family(catalog.EVENT_QUEUE_SIZE, [("", 0)])
    yield from page.family(catalog.MAX_LAG, [(labels(clientId=_FETCHER), 0)])


def among_others(page: Page, view: ClusterView) -> Iterator[str]:
    """A broker of a cluster."""
    tally = _Tally()
    context = view.context
    if context is not None:
        tally.topics = len(context.assignments)
        tally.brokers = len(context.brokers)
        tally.deleting = len(context.deleting)
        live = context.live_ids
        for number, (name, leadership) in enumerate(list(context.leaderships.items()), 1):
            tally.partitions += 1
            state = leadership.state
            known = context.assignments.get(name.topic, {}).get(name.partition)
            if name.topic in context.deleting:
                tally.replicas_deleting += 0 if known is None else len(known.replicas)
            else:
                tally.offline += state.leader not in live
                tally.imbalance += (
                    known is not None and bool(known.replicas) and state.leader != known.replicas[0]
                )
            if not number % _SLICE:
                yield ""
    yield from _controller(page, tally, is_active=context is not None)
    counts = view.controller.counts
    yield from page.family(catalog.UNCLEAN_ELECTIONS, [("", counts.unclean_elections)])
    yield from page.family(catalog.EVENT_QUEUE_SIZE, [("", view.controller.waiting_events)])
    for metric, count, histogram in (
        (catalog.LEADER_ELECTIONS, catalog.LEADER_ELECTIONS_COUNT, counts.elected_us),
        (catalog.EVENT_QUEUE_TIME, catalog.EVENT_QUEUE_TIME_COUNT, counts.waited_us),
        (catalog.EVENT_PROCESSING, catalog.EVENT_PROCESSING_COUNT, counts.worked_us),
    ):
        yield from timing(page, metric, count, histogram)
    lags = view.loops.lags()
    worst = max((lag for _, _, lag in lags), default=0)
    yield from page.family(catalog.MAX_LAG, [(labels(clientId=_FETCHER), worst)])
    yield from page.family(
        catalog.FETCHER_LAG,
        (
            (
                labels(
                    clientId=f"ReplicaFetcherThread-0-{leader}", topic=name.topic, partition=name.partition
                ),
                lag,
            )
            for leader, name, lag in lags
        ),
    )
    yield from _session(page, view)


def _session(page: Page, view: ClusterView) -> Iterator[str]:
    yield from page.family(catalog.ZK_CONNECTED, [("", int(view.is_connected))])
    latency = getattr(view.store, "latency_us", None)
    if isinstance(latency, Histogram):
        yield from timing(page, catalog.ZK_LATENCY, catalog.ZK_LATENCY_COUNT, latency)
        yield from page.family(catalog.ZK_DISCONNECTS, [("", getattr(view.store, "disconnects", 0))])
        yield from page.family(catalog.ZK_EXPIRES, [("", getattr(view.store, "expiries", 0))])


def _controller(page: Page, tally: _Tally, *, is_active: bool) -> Iterator[str]:
    for metric, value in (
        (catalog.ACTIVE_CONTROLLER, int(is_active)),
        (catalog.OFFLINE_PARTITIONS, tally.offline),
        (catalog.GLOBAL_TOPICS, tally.topics),
        (catalog.GLOBAL_PARTITIONS, tally.partitions),
        (catalog.IMBALANCE, tally.imbalance),
        (catalog.ACTIVE_BROKERS, tally.brokers),
        (catalog.FENCED_BROKERS, 0),
        (catalog.TOPICS_TO_DELETE, tally.deleting),
        (catalog.REPLICAS_TO_DELETE, tally.replicas_deleting),
    ):
        yield from page.family(metric, [("", value)])
