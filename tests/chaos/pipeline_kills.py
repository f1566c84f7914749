"""`tidelog pipeline run` killed with -9 somewhere in a batch, Java and all: what tests of pipelines share."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidelog.spark.pipelines.status import last_commit
from tidelog.spark.settings import PipelineSettings

KILLS = 3
_WAIT_S = 240.0
_SMALL_BATCHES = ("--trigger", "0 seconds", "--max-offsets-per-trigger", "200")


def kill_in_a_batch(settings: PipelineSettings, pipeline: str, done: int, draw: random.Random) -> int:
    """Go on from the batch that was done last until another one is, and kill; the batch that is done then."""
    checkpoint = settings.checkpoint(pipeline)
    with _running(settings, pipeline, *_SMALL_BATCHES) as process:
        _wait_for_batch(process, checkpoint, done + 1)
        # Where in a batch it ends is left to chance, over more than a batch's length.
        time.sleep(draw.random())
        os.killpg(process.pid, signal.SIGKILL)
    found = last_commit(checkpoint)
    assert found is not None
    return found[0]


def finish(settings: PipelineSettings, pipeline: str, *, cores: int = 2) -> None:
    """Work off what is there."""
    with _running(settings, pipeline, "--once", cores=cores) as process:
        assert process.wait(_WAIT_S) == 0


@contextmanager
def _running(
    settings: PipelineSettings, pipeline: str, *options: str, cores: int = 2
) -> Iterator[subprocess.Popen[bytes]]:
    """`tidelog pipeline run` in a process group of its own."""
    command = [sys.executable, "-m", "tidelog", "pipeline", "run", pipeline, "--master", f"local[{cores}]"]
    where = ["--bootstrap-server", settings.bootstrap_servers, "--directory", str(settings.directory)]
    process = subprocess.Popen(
        [*command, *where, *options], stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def _wait_for_batch(process: subprocess.Popen[bytes], checkpoint: Path, batch: int) -> None:
    """Wait until the checkpoint calls this batch done."""
    deadline = time.monotonic() + _WAIT_S
    while (last_commit(checkpoint) or (-1, 0.0))[0] < batch:
        assert process.poll() is None, "the pipeline has ended by itself"
        assert time.monotonic() < deadline, "no batch has ended"
        time.sleep(0.02)
