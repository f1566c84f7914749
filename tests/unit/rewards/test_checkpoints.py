"""Checkpoints without the state that belongs to them: they are of another version, or damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tidelog.errors import TidelogError
from tidelog.spark.pipelines import registry
from tidelog.spark.pipelines.query import require_state
from tidelog.spark.settings import PipelineSettings

NO_SPARK = cast(Any, None)
UNREACHABLE = "127.0.0.1:9"
MOVE = "move its checkpoint directory away, start with --starting-offsets earliest"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("account-switch", f"account-switch has no .*keyed/layout.json, .*: {MOVE}"),
        ("invite-fraud", f"invite-fraud has no .*keyed/layout.json, .*: {MOVE}"),
        ("earnings", "earnings has no .*earnings/parts.json, .*: move the checkpoint away and start with"),
    ],
)
def test_a_checkpoint_without_its_state_is_refused_and_stays_as_it_is(
    tmp_path: Path, name: str, sentence: str
) -> None:
    settings = PipelineSettings(UNREACHABLE, tmp_path)
    offsets = settings.checkpoint(name) / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "17").touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(TidelogError, match=sentence):
        registry.load(name).start(NO_SPARK, settings)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_checkpoint_needs_no_state_before_its_first_micro_batch(tmp_path: Path) -> None:
    checkpoint, state = tmp_path / "checkpoint", tmp_path / "state.json"
    require_state(checkpoint, state, "")
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / ".0.crc").touch()
    require_state(checkpoint, state, "")
    (checkpoint / "offsets" / "0").touch()
    with pytest.raises(TidelogError, match="has no"):
        require_state(checkpoint, state, "")
    state.touch()
    require_state(checkpoint, state, "")
