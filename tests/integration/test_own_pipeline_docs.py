"""The page about own pipelines: its package is installed, listed and run as the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tidelog import Consumer, Producer
from tidelog.testing import broker

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "own-pipeline.md"
TIMEOUT_S = 240
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def install(site: Path) -> None:
    """Do what pip does with the package of the page."""
    page = PAGE.read_text(encoding="utf-8")
    for language, code in _BLOCK.findall(page):
        if language == "python":
            path = site / code.splitlines()[0].removeprefix("# ")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code, encoding="utf-8")
    [project] = [code for language, code in _BLOCK.findall(page) if language == "toml"]
    told = tomllib.loads(project)["project"]
    info = site / "my_pipelines-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {told['name']}\nVersion: {told['version']}\n", encoding="utf-8"
    )
    lines = [
        line
        for group, named in told["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {place}" for name, place in named.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


def tidelog(site: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tidelog", *arguments],
        cwd=site,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path])},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_pipeline_of_the_page_is_listed_and_writes_each_length_once(tmp_path: Path) -> None:
    install(tmp_path)
    assert "lengths\tThe length of each order.\torders\ttopic order-lengths\n" in tidelog(
        tmp_path, "pipeline", "list"
    )
    with broker() as running:
        servers = running.bootstrap_servers
        with Producer({"bootstrap.servers": servers}) as producer:
            for order in (b"tea", b"coffee"):
                producer.send("orders", order)
        for _ in range(2):
            tidelog(
                tmp_path, "pipeline", "run", "lengths", "--once", "-b", servers, "-d", str(tmp_path / "work")
            )
        options = {
            "bootstrap.servers": servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
        with Consumer(options) as consumer:
            consumer.subscribe(["order-lengths"])
            found = [next(iter(consumer)).value, next(iter(consumer)).value]
            assert sorted(value or b"" for value in found) == [b"3", b"6"]
            assert consumer.poll(1.0) == []
