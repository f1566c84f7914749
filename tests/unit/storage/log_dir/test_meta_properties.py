"""meta.properties: both of Kafka's versions are read, ids that do not fit stop the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.errors import StorageError
from tidelog.ids import uuid_from_text
from tidelog.storage.log_dir.meta_properties import (
    Identity,
    MetaProperties,
    agreed_identity,
    read_meta_properties,
    write_meta_properties,
)

CLUSTER = "3Db5QLSqSZieL3rJBUUegA"
DIRECTORY_ID = uuid_from_text("Rd0CvYAKQlK4uFpQqe4qqg")


def test_what_is_written_is_version_0_and_read_back(tmp_path: Path) -> None:
    meta = MetaProperties(0, 7, CLUSTER, DIRECTORY_ID)
    write_meta_properties(tmp_path, meta)
    assert read_meta_properties(tmp_path) == meta
    lines = (tmp_path / "meta.properties").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        "broker.id=7",
        f"cluster.id={CLUSTER}",
        "directory.id=Rd0CvYAKQlK4uFpQqe4qqg",
        "version=0",
    ]


@pytest.mark.parametrize(
    ("text", "meta"),
    [
        (
            "#\n#Tue Nov 11 10:00:00 UTC 2025\nbroker.id=0\nversion=0\ncluster.id=abc\\=\n",
            MetaProperties(0, 0, "abc=", None),
        ),
        (
            f"node.id=3\nversion=1\ncluster.id={CLUSTER}\ndirectory.id=Rd0CvYAKQlK4uFpQqe4qqg\n",
            MetaProperties(1, 3, CLUSTER, DIRECTORY_ID),
        ),
        ("broker.id = 5\n\n! old\n", MetaProperties(0, 5, None, None)),
        ("version:0\ncluster.id x-y\n", MetaProperties(0, None, "x-y", None)),
        ("", MetaProperties(0, None, None, None)),
    ],
)
def test_files_that_kafka_wrote_are_read(tmp_path: Path, text: str, meta: MetaProperties) -> None:
    (tmp_path / "meta.properties").write_text(text)
    assert read_meta_properties(tmp_path) == meta


def test_version_1_is_kept_as_it_is(tmp_path: Path) -> None:
    meta = MetaProperties(1, 3, CLUSTER, DIRECTORY_ID)
    write_meta_properties(tmp_path, meta)
    assert "node.id=3" in (tmp_path / "meta.properties").read_text()
    assert read_meta_properties(tmp_path) == meta


def test_a_directory_without_the_file_says_nothing(tmp_path: Path) -> None:
    assert read_meta_properties(tmp_path) is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"version=2\n", "version 2 is not known"),
        (b"version=1\nnode.id=1\n", "needs node.id and cluster.id"),
        (b"broker.id=one\n", "broker.id=one is no number"),
        (b"directory.id=short\n", "not a Kafka UUID"),
        (b"\xff\xfe", "no text"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_with_its_name(
    tmp_path: Path, content: bytes, why: str
) -> None:
    path = tmp_path / "meta.properties"
    path.write_bytes(content)
    with pytest.raises(StorageError, match=why) as caught:
        read_meta_properties(tmp_path)
    assert str(path) in str(caught.value)


def test_directories_that_agree_give_the_identity() -> None:
    found = {
        Path("/a"): MetaProperties(0, 1, CLUSTER, None),
        Path("/b"): None,
        Path("/c"): MetaProperties(1, 1, CLUSTER, DIRECTORY_ID),
    }
    assert agreed_identity(found, broker_id=None, cluster_id=None) == Identity(1, CLUSTER)
    assert agreed_identity({Path("/b"): None}, broker_id=4, cluster_id=None) == Identity(4, None)


@pytest.mark.parametrize(
    ("found", "broker_id", "cluster_id", "message"),
    [
        ({"/a": MetaProperties(0, 1, None)}, 2, None, "belongs to broker 1, .*says 2: set broker.id=1"),
        ({"/a": MetaProperties(0, 1, "x")}, 1, "y", "belongs to cluster x, .*says y"),
        (
            {"/a": MetaProperties(0, 1), "/b": MetaProperties(0, 2)},
            None,
            None,
            "/b/meta.properties belongs to broker 2, but /a/meta.properties says 1",
        ),
        (
            {"/a": MetaProperties(0, 1, "x"), "/b": MetaProperties(0, 1, "y")},
            None,
            None,
            "belongs to cluster y",
        ),
    ],
)
def test_ids_that_differ_name_the_file_and_the_mend(
    found: dict[str, MetaProperties], broker_id: int | None, cluster_id: str | None, message: str
) -> None:
    metas = {Path(path): meta for path, meta in found.items()}
    with pytest.raises(StorageError, match=message):
        agreed_identity(metas, broker_id=broker_id, cluster_id=cluster_id)
