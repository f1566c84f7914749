"""Fetch requests written by hand are those that the codec of all messages writes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.client.consumer._fetch import fetch_request
from tidelog.client.consumer._fetch.fetch_config import FetchConfig
from tidelog.client.consumer._fetch.fetch_request import encode_fetch_request
from tidelog.client.consumer._fetch.fetch_session import PartitionAsk, SessionRequest
from tidelog.client.resources import IsolationLevel
from tidelog.ids import TopicPartition, Uuid

int32 = st.integers(-1, 0x7FFFFFFF)
partitions = st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 300))
ids = {name: Uuid(name.encode() * 16) for name in "abc"}


@st.composite
def requests(draw: st.DrawFn) -> SessionRequest:
    offsets = draw(st.dictionaries(partitions, st.integers(0, 1 << 62), max_size=200))
    to_send = {
        each: PartitionAsk(ids[each.topic], offset, draw(int32), draw(int32))
        for each, offset in offsets.items()
    }
    to_forget = tuple((each, ids[each.topic]) for each in draw(st.lists(partitions, max_size=5, unique=True)))
    return SessionRequest(draw(int32), draw(int32), to_send, to_forget, True)


@settings(max_examples=40, deadline=None)
@given(
    request=requests(),
    config=st.builds(
        FetchConfig,
        min_bytes=int32,
        max_wait_ms=int32,
        max_bytes=int32,
        client_rack=st.text(max_size=200),
        isolation_level=st.sampled_from(IsolationLevel),
    ),
    version=st.sampled_from(fetch_request._BY_HAND),
)
def test_a_request_by_hand_is_the_one_of_the_codec(
    request: SessionRequest, config: FetchConfig, version: int
) -> None:
    by_hand = encode_fetch_request(request, version, config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch_request, "_BY_HAND", ())
        assert encode_fetch_request(request, version, config) == by_hand
