"""The pages about Spark: the tutorial's program prints what it says, the tables name every option."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.test_client_docs import SERVERS, examples

from tidelog.options import ConfigDef, OptionType
from tidelog.spark.runtime._options import SOURCE_OPTIONS
from tidelog.spark.write.write_options import WRITE_OPTIONS
from tidelog.testing import broker

TUTORIAL = "docs/tutorials/spark.md"
REFERENCE = "docs/reference/spark.md"
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 240


def table(options: ConfigDef) -> str:
    """The table of a side's options, as the page has it."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for name in options:
        option = options[name]
        default = "" if option.default is None else f"`{option.default}`"
        default = default.lower() if option.type is OptionType.BOOLEAN else default
        lines.append(f"| `{name}` | {default} | {option.doc} |")
    return "\n".join(lines) + "\n"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_page_opens_with_a_job_that_runs(tmp_path: Path) -> None:
    first = examples(TUTORIAL)[0]
    assert first.heading == "From nothing to an exactly-once job"
    with broker() as running:
        program = tmp_path / "large_orders.py"
        # The environment is not active: the page says what the program needs then.
        naming = "from tidelog.spark import use_this_python\n\nuse_this_python()\n"
        assert naming in (ROOT / TUTORIAL).read_text(encoding="utf-8")
        code = naming + first.code.replace(SERVERS, running.bootstrap_servers)
        program.write_text(code, encoding="utf-8")
        chosen = {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME"}
        environment = {name: value for name, value in os.environ.items() if name not in chosen}
        own = str(Path(sys.executable).parent)
        path = [each for each in os.environ["PATH"].split(os.pathsep) if each != own]
        environment |= {"PATH": os.pathsep.join(path), "SPARK_LOCAL_IP": "127.0.0.1"}
        done = subprocess.run(
            [sys.executable, program.name],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    assert (done.returncode, done.stdout) == (0, first.output), done.stderr[-3000:]


@pytest.mark.parametrize("options", [SOURCE_OPTIONS, WRITE_OPTIONS], ids=["reading", "writing"])
def test_the_page_has_the_table_of_all_options(options: ConfigDef) -> None:
    assert table(options) in (ROOT / REFERENCE).read_text(encoding="utf-8")
