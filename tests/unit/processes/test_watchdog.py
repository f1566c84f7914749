"""Children end with the process that started them, whatever ended it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="waits through process handles")

WAIT_S = 60.0
PARENT = """
import subprocess, sys
from tidelog.processes.watchdog import end_with_me

for arguments in (["60"], ["61"]):
    child = subprocess.Popen(["sleep", *arguments], start_new_session=True)
    end_with_me(child.pid)
    print(child.pid, flush=True)
sys.stdin.read()
"""


def ended(handle: int) -> bool:
    return bool(select.select([handle], [], [], WAIT_S)[0])


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_children_of_a_killed_process_end(stopped: bool) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        handles = [os.pidfd_open(pid) for pid in pids]
        if stopped:
            os.kill(pids[0], signal.SIGSTOP)
        parent.kill()
        parent.wait()
    try:
        assert all(ended(handle) for handle in handles)
    finally:
        for handle in handles:
            os.close(handle)
