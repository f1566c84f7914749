from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOW = "import os, site; site.addsitedir({!r}); print(os.environ.get('PYSPARK_DRIVER_PYTHON'))"

pytestmark = pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="this is no virtual environment")


def chosen(**environment: str) -> str:
    """What a Python of this environment has chosen when it has started."""
    command = [sys.executable, "-c", SHOW.format(str(ROOT / "src"))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


@pytest.fixture
def elsewhere(tmp_path: Path) -> str:
    """A directory with another ``python3``."""
    (tmp_path / "python3").touch(mode=0o755)
    return str(tmp_path)


def test_spark_takes_this_python_where_another_one_is_first_on_the_path(elsewhere: str) -> None:
    assert chosen(PATH=elsewhere) == sys.executable


def test_an_environment_that_is_activated_is_left_alone(elsewhere: str) -> None:
    assert chosen(PATH=os.pathsep.join([str(Path(sys.executable).parent), elsewhere])) == "None"


@pytest.mark.parametrize("name", ["PYSPARK_PYTHON", "SPARK_HOME"])
def test_what_somebody_has_chosen_is_left_alone(elsewhere: str, name: str) -> None:
    assert chosen(PATH=elsewhere, **{name: "/chosen"}) == "None"
