"""Fetch sessions (KIP-227): what is sent again, what is forgotten, what makes a session end."""

from __future__ import annotations

from tests.compat.side_by_side.batches import batch
from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.records_requests import (
    append,
    fetch_request,
    fetch_topic,
    forgotten,
    shown,
    wanted,
)
from tests.compat.side_by_side.side import UNKNOWN_ID, Side

from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.messages.fetch import FetchRequest, FetchTopic

VERSIONS = (7, 12, 13, 18)


class Session:
    """A consumer's session with one broker."""

    def __init__(self, side: Side, version: int) -> None:
        self.side = side
        self.version = version
        self.id = 0
        self.epoch = 0

    def send(self, request: FetchRequest, *, id: int | None = None, epoch: int | None = None) -> object:
        """Send with the session's id and epoch, or with others."""
        request.session_id = self.id if id is None else id
        request.session_epoch = self.epoch if epoch is None else epoch
        response = self.side.ask_raw(self.version, request)
        if isinstance(response, str):
            return response
        if response.error_code == 0:  # type: ignore[attr-defined]
            self.id = response.session_id  # type: ignore[attr-defined]
            self.epoch += 1
        return shown(self.side.plain(response, self.version))

    def topic(self, name: str, *partitions: object) -> FetchTopic:
        return fetch_topic(self.side, name, *partitions, version=self.version)  # type: ignore[arg-type]


def started(
    side: Side, version: int, partitions: int = 3, filled: bool = True
) -> tuple[Session, str, object]:
    """A session over all partitions of a new topic, and the answer that opened it."""
    topic = side.topic("t", partitions)
    if filled:
        for each in range(partitions):
            append(side, topic, batch(2), partition=each)
    session = Session(side, version)
    offset = 0
    first = session.send(
        fetch_request(session.topic(topic, *(wanted(offset, each) for each in range(partitions))))
    )
    return session, topic, first


@case(versions=range(7, 19))
def opened(side: Side, version: int) -> object:
    return started(side, version)[2]


@case(versions=VERSIONS)
def nothing_changed(side: Side, version: int) -> object:
    """Partitions that have nothing new are left out of an incremental answer."""
    session, _, _ = started(side, version, filled=False)
    return [session.send(fetch_request()), session.send(fetch_request())]


@case(versions=VERSIONS)
def same_records_again(side: Side, version: int) -> object:
    """The session fetches from the old offset while nobody moves it."""
    session, _, _ = started(side, version)
    return [session.send(fetch_request()), session.send(fetch_request())]


@case(versions=VERSIONS)
def one_partition_moved(side: Side, version: int) -> object:
    session, topic, _ = started(side, version)
    move = fetch_request(session.topic(topic, *(wanted(2, each) for each in range(3))))
    answers = [session.send(move), session.send(fetch_request())]
    append(side, topic, batch(1), partition=1)
    return [*answers, session.send(fetch_request())]


@case(versions=VERSIONS)
def high_watermark_moved(side: Side, version: int) -> object:
    """A partition whose watermark moved is told of even if its reader is far behind its records' limit."""
    session, topic, _ = started(side, version, filled=False)
    append(side, topic, batch(1), partition=2)
    return [session.send(fetch_request(max_bytes=0)), session.send(fetch_request(max_bytes=0))]


@case(versions=VERSIONS)
def forgotten_partition(side: Side, version: int) -> object:
    session, topic, _ = started(side, version)
    drop = fetch_request(forgotten_topics_data=[forgotten(side, topic, 0, 2, version=version)])
    return [session.send(drop), session.send(fetch_request())]


@case(versions=VERSIONS)
def forgotten_unknown(side: Side, version: int) -> object:
    session, topic, _ = started(side, version)
    drop = fetch_request(forgotten_topics_data=[forgotten(side, topic, 9, version=version)])
    return session.send(drop)


@case(versions=VERSIONS)
def forgotten_all(side: Side, version: int) -> object:
    """A session without partitions ends."""
    session, topic, _ = started(side, version)
    drop = fetch_request(forgotten_topics_data=[forgotten(side, topic, 0, 1, 2, version=version)])
    return [session.send(drop), session.send(fetch_request())]


@case(versions=VERSIONS)
def forgotten_and_named(side: Side, version: int) -> object:
    session, topic, _ = started(side, version)
    both = fetch_request(
        session.topic(topic, wanted(1, 1)), forgotten_topics_data=[forgotten(side, topic, 1, version=version)]
    )
    return [session.send(both), session.send(fetch_request())]


@case(versions=VERSIONS)
def added_partition(side: Side, version: int) -> object:
    topic = side.topic("t", 2)
    append(side, topic, batch(), partition=1)
    session = Session(side, version)
    session.send(fetch_request(session.topic(topic, wanted())))
    more = session.send(fetch_request(session.topic(topic, wanted(0, 1))))
    return [more, session.send(fetch_request())]


@case((0, 1, 2, 5, -1, 2**31 - 1), versions=(7, 18))
def epochs(side: Side, epoch: int, version: int) -> object:
    """Right, repeated, skipped, final, first again."""
    session, topic, _ = started(side, version)
    answer = session.send(fetch_request(session.topic(topic, wanted(1))), epoch=epoch)
    session.epoch = 2
    return [answer, session.send(fetch_request())]


@case((12345, -1), versions=(7, 18))
def unknown_session(side: Side, session_id: int, version: int) -> object:
    session = Session(side, version)
    return session.send(fetch_request(session.topic(side.topic(), wanted())), id=session_id, epoch=1)


@case(versions=(7, 18))
def highest_session_id(side: Side, version: int) -> object:
    session = Session(side, version)
    return session.send(fetch_request(session.topic(side.topic(), wanted())), id=2**31 - 1, epoch=1)


@case(
    {"id-0-epoch-1": (0, 1), "id-7-epoch-0": (7, 0), "id-7-final": (7, -1), "id-0-final": (0, -1)},
    versions=(7, 18),
)
def odd_beginnings(side: Side, given: tuple[int, int], version: int) -> object:
    session = Session(side, version)
    session_id, epoch = given
    return session.send(fetch_request(session.topic(side.topic(), wanted())), id=session_id, epoch=epoch)


@case(versions=(7, 18))
def closed(side: Side, version: int) -> object:
    """Epoch -1 with an id ends the session."""
    session, topic, _ = started(side, version)
    final = session.send(fetch_request(session.topic(topic, wanted())), epoch=-1)
    return [final, session.send(fetch_request(), epoch=2)]


@case(versions=(7, 18))
def empty(side: Side, version: int) -> object:
    """No session for no partitions."""
    session = Session(side, version)
    return [session.send(fetch_request()), session.id != 0]


@case(versions=VERSIONS)
def unknown_partition(side: Side, version: int) -> object:
    topic = side.topic()
    session = Session(side, version)
    first = session.send(fetch_request(session.topic(topic, wanted(), wanted(0, 6))))
    return [first, session.send(fetch_request())]


@case(versions=VERSIONS)
def unknown_topic(side: Side, version: int) -> object:
    session = Session(side, version)
    none = FetchTopic(topic=side.name_of("none"), topic_id=UNKNOWN_ID, partitions=[wanted()])
    first = session.send(fetch_request(none))
    return [first, session.send(fetch_request())]


@case(versions=VERSIONS)
def offset_out_of_range(side: Side, version: int) -> object:
    session, topic, _ = started(side, version)
    wrong = session.send(fetch_request(session.topic(topic, wanted(99, 1))))
    return [wrong, session.send(fetch_request())]


@case(versions=VERSIONS)
def same_partition_twice(side: Side, version: int) -> object:
    topic = side.topic()
    append(side, topic, batch(3))
    session = Session(side, version)
    first = session.send(fetch_request(session.topic(topic, wanted(0), wanted(1))))
    return [first, session.send(fetch_request())]


@case(versions=VERSIONS)
def topic_deleted_meanwhile(side: Side, version: int) -> object:
    session, topic, _ = started(side, version, partitions=1)
    side.ask(6, DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=3000))
    side.wait_until_gone(topic)
    return [session.send(fetch_request()), session.send(fetch_request())]


@case(versions=(7, 12))
def topic_created_meanwhile(side: Side, version: int) -> object:
    session = Session(side, version)
    name = side.name_of("later")
    first = session.send(fetch_request(FetchTopic(topic=name, partitions=[wanted()])))
    side.topic("later")
    append(side, name, batch())
    return [first, session.send(fetch_request())]


@case({"12-to-13": (12, 13), "13-to-12": (13, 12), "7-to-18": (7, 18)})
def version_changed(side: Side, given: tuple[int, int]) -> object:
    """Names cannot become ids, nor ids names, within a session."""
    before, after = given
    session, topic, _ = started(side, before)
    session.version = after
    return session.send(fetch_request(session.topic(topic, wanted(1))))


@case(versions=(7, 18))
def order_of_partitions(side: Side, version: int) -> object:
    """Who had records moves to the end of the line."""
    session, topic, _ = started(side, version)
    small = [session.send(fetch_request(max_bytes=90)) for _ in range(4)]
    moved = session.send(fetch_request(session.topic(topic, wanted(2, 0)), max_bytes=90))
    return [*small, moved, session.send(fetch_request(max_bytes=90))]


@case(versions=(12, 18))
def read_committed(side: Side, version: int) -> object:
    session, _, _ = started(side, version)
    return session.send(fetch_request(isolation_level=1))
