from __future__ import annotations

import json
from typing import Any

import pytest

from tidelog.spark.read.progress import SourceMetrics, source_metrics


def progress(end: dict[str, Any] | None, latest: dict[str, Any] | None) -> dict[str, Any]:
    source = {
        "description": "tidelog",
        "numInputRows": 7,
        "inputRowsPerSecond": 3.5,
        "endOffset": None if end is None else json.dumps(end),
        "latestOffset": None if latest is None else json.dumps(latest),
    }
    return {"sources": [source]}


def test_a_source_is_as_far_behind_as_its_partitions_are() -> None:
    end = {"t": {"0": 10, "1": 4}, "t#id:b2xkb2xkb2xkb2xkb2xkbw": {}, "u": {"0": 1}}
    latest = {"t": {"0": 15, "1": 4}, "u": {"0": 2}}
    (found,) = source_metrics(progress(end, latest))
    assert found == SourceMetrics("tidelog", 7, 3.5, 0, 5, 2.0, 6)
    assert found.as_dict() == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "5",
        "avgOffsetsBehindLatest": "2.0",
    }


@pytest.mark.parametrize("nothing", ["", "None", "null"])
def test_offsets_that_spark_has_made_text_of_nothing_are_none(nothing: str) -> None:
    told = progress({"t": {"0": 1}}, None)
    told["sources"][0]["latestOffset"] = nothing
    assert source_metrics(told) == []


def test_a_source_that_does_not_tell_its_latest_offsets_is_left_out() -> None:
    assert source_metrics(progress(None, {"t": {"0": 1}})) == []
    assert source_metrics(progress({"t": {"0": 1}}, None)) == []
    assert source_metrics(progress({"t": {"0": 1}}, {"u": {"0": 1}})) == []
