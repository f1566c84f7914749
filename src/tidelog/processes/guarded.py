"""``python -m tidelog.processes.guarded MODULE ARGUMENTS…``: runs a module, and ends it with its parent.

The parent holds the other end of this process's standard input and never writes. When that end closes, the
parent has gone, whatever ended it: the process then gets SIGTERM from itself, as if somebody had stopped it,
and after a grace period it is ended at once. Spark's JVM watches its own standard input likewise, and
Python workers watch the JVM, so that nothing of a run outlives it.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time

GRACE_S = 30.0


def watch_parent() -> None:
    """End this process when standard input closes."""
    threading.Thread(target=_wait_for_the_end, name="parent watch", daemon=True).start()


def _wait_for_the_end() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os._exit(1)


def main() -> None:
    """Run the module that the command line names."""
    watch_parent()
    _, module, *arguments = sys.argv
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
