"""``tidelog top`` shows queries of Spark that tell of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.integration.command_line import CommandLine
from tests.rigs.told_queries import QUERY_ID, told_query
from tests.rigs.waiting import wait_until

from tidelog.testing import broker


def test_a_query_is_in_the_list_with_source_and_sink(tmp_path: Path) -> None:
    with broker(topics={"orders": 2, "large-orders": 1}) as cluster, told_query(cluster, tmp_path) as query:
        tidelog = CommandLine(cluster.bootstrap_servers)
        query.batch(20)

        def queries() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = tidelog.json("top", "--once", "--interval", "0.2")["queries"]
            return found

        wait_until(lambda: any(each["batch_ms"] is not None and each["epoch"] == 0 for each in queries()))
        (found,) = queries()
        assert (found["name"], found["query_id"], found["running"]) == ("copies", QUERY_ID, True)
        assert (found["reads"], found["writes"], found["lag"]) == (["orders"], ["large-orders"], 0)
        lines = tidelog.ok("top", "--once", "--interval", "0.2").splitlines()
        (row,) = [line.split("\t") for line in lines if line.startswith("copies\t")]
        assert row[1:4] == ["running", "orders", "large-orders"]
        # The group in which it tells this is no group of people's.
        assert not any("__tidelog-spark" in line for line in lines)
