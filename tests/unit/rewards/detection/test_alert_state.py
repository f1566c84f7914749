"""What tasks remember: rows by key over many batches, restarts, files that are swallowed and go."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from tidelog_rewards.detection import alert_state
from tidelog_rewards.detection.alert_state import (
    STATE_COLUMNS,
    KeyedState,
    StateError,
    StateReader,
    key_of,
    keys_of,
    newest_event_us,
    open_layout,
    pair_keys_of,
)

SCHEMA = pa.schema([*STATE_COLUMNS, pa.field("name", pa.string())])


def rows(*given: tuple[int, int, str]) -> pa.Table:
    columns = zip(*given, strict=True) if given else ((), (), ())
    return pa.table([pa.array(each, kind) for each, kind in zip(columns, SCHEMA.types, strict=True)], SCHEMA)


def names(found: pa.Table) -> list[str]:
    return sorted(found["name"].to_pylist())


def keys(*given: int) -> pa.Array:
    return pa.array(given, pa.uint64())


def test_the_state_before_a_batch_is_that_after_the_one_before_whatever_was_written_since(
    tmp_path: Path,
) -> None:
    KeyedState(tmp_path, 0, 3, SCHEMA).commit(rows((1, 100, "a")), 0, 7)
    KeyedState(tmp_path, 0, 5, SCHEMA).commit(rows((1, 100, "b"), (2, 100, "c")), 0, 9)
    assert names(KeyedState(tmp_path, 0, 5, SCHEMA).rows_of(keys(1, 2))) == ["a"]
    assert names(KeyedState(tmp_path, 0, 6, SCHEMA).rows_of(keys(1))) == ["a", "b"]
    KeyedState(tmp_path, 0, 5, SCHEMA).commit(rows((2, 100, "again")), 0, 8)
    assert names(KeyedState(tmp_path, 0, 9, SCHEMA).rows_of(keys(1, 2, 3))) == ["a", "again"]
    assert (newest_event_us(tmp_path, 2, 5), newest_event_us(tmp_path, 2, 6)) == (7, 8)


def test_rows_are_found_in_files_of_all_sizes_and_go_when_they_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_state, "_SMALL_ROWS", 4)
    monkeypatch.setattr(alert_state, "_LARGE_ROWS", 300)
    draw = Random(4)
    kept: list[tuple[int, int, str]] = []
    for batch in range(60):
        now = batch * 10
        state = KeyedState(tmp_path, 0, batch, SCHEMA)
        for wanted in ([draw.randrange(30)], list(range(0, 30, 2))):
            found = state.rows_of(keys(*wanted))
            alive = {row["name"] for row in found.to_pylist() if row["until_us"] > now}
            assert alive == {name for key, until, name in kept if key in wanted and until > now}
            held = Counter(key for part in state.held(keys(*wanted)) for key in part.to_pylist())
            assert held == Counter(found["key"].to_pylist())
        size = draw.choice((0, 1, 3, 40))
        new = [(draw.randrange(30), now + draw.randrange(1, 250), f"{batch}-{at}") for at in range(size)]
        kept += new
        left = state.commit(rows(*new), now, now)
        assert left == KeyedState(tmp_path, 0, batch + 1, SCHEMA).rows
    assert 0 < left < len(kept)
    files = list((tmp_path / "0000").iterdir())
    assert len(files) < 15
    assert StateReader(tmp_path, 1, 59, SCHEMA).rows_of([5]).num_rows


def test_a_checkpoint_goes_back_by_two_batches_and_is_refused_where_it_goes_back_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_state, "_SMALL_ROWS", 4)
    for batch in range(12):
        new = [(batch, 100, f"{batch}-{at}") for at in range(40 if batch == 2 else 1)]
        KeyedState(tmp_path, 0, batch, SCHEMA).commit(rows(*new), 0, batch)
    left = sorted(int(path.stem) for path in (tmp_path / "0000").iterdir())
    assert (left[0], left[-3:]) == (2, [9, 10, 11]), "file 2 has rows that are still named"
    for batch in (12, 11, 10):
        state = KeyedState(tmp_path, 0, batch, SCHEMA)
        assert (state.rows, state.newest_us) == (39 + batch, batch - 1)
    for batch in (9, 8, 3, 0):
        with pytest.raises(
            StateError,
            match=f"batch {batch} is to be done again, but .* go back by 2 batches; move its checkpoint",
        ):
            KeyedState(tmp_path, 0, batch, SCHEMA)
    KeyedState(tmp_path, 0, 10, SCHEMA).commit(rows((10, 100, "again")), 0, 10)
    assert names(KeyedState(tmp_path, 0, 11, SCHEMA).rows_of(keys(9, 10, 11))) == ["9-0", "again"]


def test_what_a_killed_task_has_left_goes(tmp_path: Path) -> None:
    KeyedState(tmp_path, 0, 0, SCHEMA).commit(rows((1, 9, "a")), 0, 1)
    unfinished = tmp_path / "0000" / "000000000000.0123456789abcdef"
    unfinished.write_bytes(b"half")
    for batch in range(1, 5):
        KeyedState(tmp_path, 0, batch, SCHEMA).commit(rows((batch, 9, "x")), 0, 1)
    assert not unfinished.exists()


def test_a_state_keeps_its_buckets_and_what_cannot_be_read_names_the_way_out(tmp_path: Path) -> None:
    assert open_layout(tmp_path / "s", SCHEMA, 8).buckets == 8
    assert open_layout(tmp_path / "s", SCHEMA).buckets == 8
    with pytest.raises(StateError, match="has 8 state partitions, and 2 are asked for: leave"):
        open_layout(tmp_path / "s", SCHEMA, 2)
    with pytest.raises(StateError, match="another version of Tidelog: move its checkpoint directory away"):
        open_layout(tmp_path / "s", SCHEMA.append(pa.field("more", pa.string())), 8)
    with pytest.raises(StateError, match="3 state partitions: it must be a power of two"):
        open_layout(tmp_path / "t", SCHEMA, 3)
    (tmp_path / "s" / "0000").mkdir()
    (tmp_path / "s" / "0000" / "000000000004.arrow").write_bytes(b"torn")
    with pytest.raises(StateError, match=r"000000000004.arrow cannot be read .* move its checkpoint"):
        KeyedState(tmp_path / "s", 0, 5, SCHEMA)


def test_keys_of_many_names_are_those_of_each_and_pairs_have_their_own() -> None:
    names = ["ann", "", "北京"]
    assert keys_of(names).to_pylist() == [key_of(name) for name in names]
    assert keys_of([]).to_pylist() == []
    pairs = pair_keys_of(["n", "n", "m"], keys_of(["ann", "bob", "ann"])).to_pylist()
    assert len({*pairs, key_of("n"), key_of("m")}) == 5


@pytest.mark.parametrize(
    ("layout", "sentence"),
    [
        (
            '{"buckets":4,"columns":["key","until_us","name"],"version":1}',
            "holds the state of another version",
        ),
        ('{"buckets":4,"columns":["key","until_us"],"version":2}', "holds the state of another version"),
        ('{"buckets":4,"columns":["key","until_us","name"]}', r"layout.json cannot be read .*`version`"),
        ("no layout", "layout.json cannot be read"),
    ],
)
def test_a_state_of_another_version_is_refused_and_stays_as_it_is(
    tmp_path: Path, layout: str, sentence: str
) -> None:
    (tmp_path / "layout.json").write_text(layout)
    with pytest.raises(StateError, match=f"{sentence}.*: move its checkpoint directory away, start with"):
        open_layout(tmp_path, SCHEMA)
    assert (tmp_path / "layout.json").read_text() == layout


def test_a_state_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        state = tmp_path / "new"
        open_layout(state, SCHEMA)
        bucket = KeyedState(state, 0, 0, SCHEMA)
        bucket.commit(rows((1, 9, "13812345678")), 0, 1)
        bucket.leave([b"13812345678"])
        found = [state, *state.rglob("*")]
        assert {each.stat().st_mode & 0o777 for each in found if each.is_dir()} == {0o700}
        assert {each.stat().st_mode & 0o777 for each in found if each.is_file()} == {0o600}
        assert len(found) == 5
    finally:
        os.umask(before)
