"""Where the outputs of pipelines are, as their notes tell it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.spark.pipelines.registry import installed, load
from tidelog.spark.settings import PipelineSettings


@pytest.mark.parametrize(
    ("cassandra", "wanted"),
    [
        (None, {"lake credit", "sqlite incidents", "topic ml_incidents", "sqlite user_regions"}),
        (
            "db1",
            {
                "lake credit",
                "cassandra shop.credit",
                "cassandra shop.incidents",
                "cassandra shop.user_regions",
            },
        ),
    ],
)
def test_each_output_has_its_kind(tmp_path: Path, cassandra: str | None, wanted: set[str]) -> None:
    settings = PipelineSettings("localhost:9092", tmp_path, cassandra=cassandra, keyspace="shop")
    found = {each for name in installed() for each in load(name).stores(settings)}
    assert wanted <= found
    kinds = {"topic", "lake", "sqlite" if cassandra is None else "cassandra"}
    assert {each.partition(" ")[0] for each in found} == kinds
