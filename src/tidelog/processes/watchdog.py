"""Ends programs that cannot watch for the end of their parent themselves (a JVM, say).

:func:`end_with_me` hands a process id to the watchdog: one small process per Python process, started when it
is first needed, whose standard input the caller holds open. When that closes, the caller has gone, whatever
ended it: what it had handed over and what still runs gets SIGTERM, and SIGKILL after a grace period. A caller
that ends its children itself, as it should, leaves nothing for the watchdog to do.

On Linux the watchdog holds a handle of each process, so that an id that was given away anew hits nobody;
elsewhere it trusts the id.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time

GRACE_S = 5.0

_lock = threading.Lock()
_watchdog: subprocess.Popen[bytes] | None = None


def end_with_me(pid: int) -> None:
    """See to it that the child ``pid`` ends when this process does."""
    global _watchdog
    with _lock:
        if _watchdog is None or _watchdog.poll() is not None:
            # It needs nothing that is installed, and is there the sooner without.
            _watchdog = subprocess.Popen(
                [sys.executable, "-IS", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        assert _watchdog.stdin is not None
        _watchdog.stdin.write(b"%d\n" % pid)
        _watchdog.stdin.flush()


class _Watched:
    """A process, by a handle where the system has such."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._handle = os.pidfd_open(pid) if sys.platform == "linux" else None

    def send(self, number: signal.Signals) -> None:
        try:
            if sys.platform == "linux" and self._handle is not None:
                signal.pidfd_send_signal(self._handle, number)
            else:
                os.kill(self._pid, number)
        except ProcessLookupError:
            # It has ended: all the better.
            return

    @property
    def is_running(self) -> bool:
        if self._handle is not None:
            # The handle of a process reads as ready once it has ended, even if nobody has asked for its code.
            return not select.select([self._handle], [], [], 0)[0]
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return False
        return True


def _watch() -> None:
    watched: list[_Watched] = []
    for line in sys.stdin.buffer:
        watched = [each for each in watched if each.is_running]
        try:
            watched.append(_Watched(int(line)))
        except ProcessLookupError:
            # Started and ended before we heard of it.
            continue
    for each in watched:
        # A process that is stopped would not hear the first one.
        each.send(signal.SIGTERM)
        each.send(signal.SIGCONT)
    deadline = time.monotonic() + GRACE_S
    while (watched := [each for each in watched if each.is_running]) and time.monotonic() < deadline:
        time.sleep(0.05)
    for each in watched:
        each.send(signal.SIGKILL)


if __name__ == "__main__":
    _watch()
