"""Forks Spark's Python processes from one that has loaded what they need.

A session with five queries starts a dozen Python processes: a runner for each source, daemons for planning
and for workers. Each loads PySpark, Arrow and the data source, some tenths of a second of CPU, of which small
machines have too little just then. :func:`serve_forks` forks a server from the driver, which has PySpark
loaded anyhow, and returns what Spark shall run in the place of Python (``PYSPARK_PYTHON``): ``fork_client``.

The server ends with the process that started it, its children when Spark closes their standard input or
socket, as ever. Nothing that is loaded here may start a thread, which a fork would not have.
"""

from __future__ import annotations

import atexit
import importlib
import marshal
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tidelog.spark.pipelines import worker_daemon
from tidelog_rewards.demo import fork_client

PRELOADED = (
    "pyspark.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "tidelog.spark.sinks.record_sink",
    "tidelog.client.admin.admin",
)
"""Beside what :mod:`tidelog.spark.pipelines.worker_daemon` loads for workers."""
_STANDARD_STREAMS = (0, 1, 2)
_SERVED: list[socket.socket] = []
"""The server ends when these close, with this process at the latest."""


def serve_forks() -> Path | None:
    """Start a server; returns the command for Spark, or None where there are no such forks."""
    if sys.platform != "linux":
        return None
    directory = Path(tempfile.mkdtemp(prefix="tidelog-fork-"))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(directory / "socket"))
    listener.listen()
    command = directory / "python"
    words = [sys.executable, "-ISE", fork_client.__file__, str(directory / "socket")]
    command.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    command.chmod(0o700)
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        _Server(listener, theirs, directory).run()
    listener.close()
    theirs.close()
    _SERVED.append(ours)
    return command


class _Server:
    """The forked process: waits for orders until the one that it was forked from has gone."""

    def __init__(self, listener: socket.socket, parent: socket.socket, directory: Path) -> None:
        self._listener = listener
        self._parent = parent
        self._directory = directory

    def run(self) -> NoReturn:
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            # Nobody asks how the children ended but their clients, whom they tell themselves.
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            atexit._clear()
            for name in PRELOADED:
                importlib.import_module(name)
            worker_daemon.preload()
            while self._parent not in select.select([self._listener, self._parent], [], [])[0]:
                self._answer()
            shutil.rmtree(self._directory, ignore_errors=True)
        except BaseException:
            # The command stays: without a server it runs Python itself.
            traceback.print_exc()
        finally:
            os._exit(0)

    def _answer(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            size, streams, _, _ = socket.recv_fds(connection, 4, len(_STANDARD_STREAMS))
            with connection.makefile("rb") as file:
                text = file.read(int.from_bytes(size, "big"))
            # A client that was ended before it had said all is nobody's child.
            order = marshal.loads(text) if len(text) == int.from_bytes(size, "big") > 0 else None
            if order is not None and os.fork() == 0:
                self._listener.close()
                self._parent.close()
                _become(connection, streams, *order)
            for stream in streams:
                os.close(stream)


def _become(
    connection: socket.socket,
    streams: Sequence[int],
    arguments: list[str],
    environment: dict[str, str],
    directory: str,
) -> NoReturn:
    """Be the Python process that the client was asked for; ends this process."""
    code = 1
    try:
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for standard, stream in zip(_STANDARD_STREAMS, streams, strict=True):
            os.dup2(stream, standard)
            os.close(stream)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(directory)
        more = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        sys.path[:0] = [path for path in more if path not in sys.path]
        module, *rest = arguments
        # What runs as a program is not the module that may have been loaded already.
        sys.modules.pop(module, None)
        sys.argv = [module, *rest]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        connection.send(bytes([code & 0xFF]))
        os._exit(code & 0xFF)
