"""Pipelines by name, and where their settings put things."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tidelog.spark.pipelines.registry import UnknownPipelineError, installed, load
from tidelog_rewards import events


def test_each_pipeline_is_found_under_its_own_name() -> None:
    for name in installed():
        pipeline = load(name)
        assert pipeline.name == name
        assert set(pipeline.inputs) <= events.BY_TOPIC.keys()


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownPipelineError, match="did you mean earnings"):
        load("earning")
    with pytest.raises(UnknownPipelineError, match="there are collect, "):
        load("xyz")


def test_naming_collect_does_not_load_spark() -> None:
    script = (
        "import sys\n"
        "from tidelog.spark.pipelines.registry import load\n"
        "load('collect')\n"
        "print('pyspark' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr
