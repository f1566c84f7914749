from __future__ import annotations

import os
import subprocess
import sys

import pytest

FORKING = """
import os
from tidelog import ClientClosedError, StreamConsumer

streams = StreamConsumer({"t": 1}, print, bootstrap_servers="127.0.0.1:1", group_id="g")
streams.start()
child = os.fork()
if child == 0:
    try:
        streams.wait()
    except ClientClosedError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_does_not_wait_for_streams_that_it_does_not_have() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=60)
    assert "was made before this process was forked" in done.stdout, done.stderr
