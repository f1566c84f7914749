from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tidelog.errors import ConfigError
from tidelog.spark import use_this_python


def test_spark_gets_the_running_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    use_this_python()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_a_chosen_interpreter_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/chosen/python")
    use_this_python()
    assert os.environ["PYSPARK_PYTHON"] == "/chosen/python"


def test_it_is_refused_once_the_jvm_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr("pyspark.SparkContext._gateway", object())
    with pytest.raises(ConfigError, match="before the first SparkSession"):
        use_this_python()
    assert "PYSPARK_PYTHON" not in os.environ


def test_no_code_of_ours_runs_at_interpreter_startup() -> None:
    loaded = "import sys; print([name for name in sys.modules if 'tidelog' in name.lower()])"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", loaded], capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
