"""A real broker for tests: a process of its own, on a free port, ready in a fraction of a second.

    with BrokerProcess(tmp_path / "data") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

``kill`` is SIGKILL, ``stop`` is SIGTERM and checks the exit code, ``restart`` comes back on the same data and
port, which no other process is given in between. What the broker prints goes to a file beside its data and is
shown when it does not start.

With the options ``STRICT_LOOP`` a test can ask for ``hold_ups``, the steps of the loop that took too long,
and for ``broken_rule``, those that computed.

For tests that harm it: ``launch`` does not wait for the broker to be ready, ``refusal`` is what a broker says
that must not start, ``send_signal`` and ``wait`` are those of the process.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tidelog.testing.reserved_port import ReservedPort

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0

STRICT_LOOP = {"tidelog.loop.step.warn.ms": "20"}
"""Options that make a broker log every step of its loop that breaks the rule: none is longer than 20 ms."""
HELD_UP = "The event loop was held up for"
_COMPUTED = re.compile(HELD_UP + r" (?P<ms>\d+) ms, computing in ")

_READY = re.compile(r"^Tidelog is ready on .*:(?P<port>\d+)$", re.MULTILINE)


class BrokerProcess:
    """``tidelog start`` as a child process."""

    def __init__(
        self,
        data_dir: Path,
        *,
        options: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
        port: int | None = None,
        properties: Path | None = None,
        environment: Mapping[str, str] | None = None,
        log_dirs: Sequence[Path] | None = None,
    ) -> None:
        """``log_dirs``: several, or others than ``data_dir``, which then only names the log file."""
        self.data_dir = data_dir
        self.log_dirs = list(log_dirs or [data_dir])
        self.options = dict(options or {})
        self.host = host
        self.port = port or 0
        self.log_file = data_dir.with_name(data_dir.name + ".log")
        self._properties = properties
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._reserves_port = not port
        self._reserved: ReservedPort | None = None
        self._log_start = 0

    @property
    def bootstrap(self) -> str:
        """``host:port``, for clients."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        return self._running().pid

    @property
    def log(self) -> str:
        """What the broker has printed since its last start."""
        with self.log_file.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode("utf-8", "replace")

    @property
    def hold_ups(self) -> list[str]:
        """What the broker has logged, in all its lives, of steps of its loop that took too long."""
        lines = self.log_file.read_text(errors="replace").splitlines() if self.log_file.exists() else []
        return [line for line in lines if HELD_UP in line]

    @property
    def broken_rule(self) -> list[str]:
        """Those of the ``hold_ups`` that are the broker's own doing.

        How long a disk takes for a file is up to the machine, which tests share with others. Where several
        run side by side even computing takes many times as long; ``TIDELOG_LOOP_LIMIT_MS`` says from where on
        a step counts (``make chaos`` goes by the rule itself, 20 ms).
        """
        limit_ms = int(os.environ.get("TIDELOG_LOOP_LIMIT_MS", "200"))
        return [
            line
            for line in self.hold_ups
            if (found := _COMPUTED.search(line)) is not None and int(found["ms"]) >= limit_ms
        ]

    @property
    def rss_bytes(self) -> int:
        """Resident memory of the broker now."""
        with Path(f"/proc/{self.pid}/statm").open() as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    @property
    def peak_rss_bytes(self) -> int:
        """The most resident memory that the broker has had since its start."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024

    @property
    def open_files(self) -> int:
        """How many file descriptors the broker has open now."""
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())

    @property
    def is_ready(self) -> bool:
        """Whether the broker has said, since its last start, that it is ready."""
        return _READY.search(self.log) is not None

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> BrokerProcess:
        """Start the broker and wait until it is ready."""
        self.launch()
        deadline = time.monotonic() + START_TIMEOUT_S
        while (ready := _READY.search(self.log)) is None:
            if not self.alive or time.monotonic() > deadline:
                raise RuntimeError(f"the broker did not start; it said:\n{self.log}")
            time.sleep(0.005)
        self.port = int(ready["port"])
        return self

    def launch(self) -> BrokerProcess:
        """Start the process and wait for nothing."""
        assert not self.alive, "the broker is running already"
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        if self._reserves_port and self._reserved is None:
            self._reserved = ReservedPort(self.host, self.port)
            self.port = self._reserved.port
        with self.log_file.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._env()
            )
        return self

    def refusal(self) -> str:
        """What the broker says, and ends with exit code 1, because it cannot start."""
        code = self.launch().wait(START_TIMEOUT_S)
        assert code == 1, f"the broker ended with code {code}; it said:\n{self.log}"
        return self.log

    def send_signal(self, number: signal.Signals) -> None:
        """Send any signal."""
        self._running().send_signal(number)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait for the process to end; returns the exit code."""
        code = self._running().wait(timeout_s)
        self._process = None
        return code

    def stop(self) -> int:
        """Shut down cleanly (SIGTERM); returns the exit code."""
        self.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """SIGKILL: no goodbye."""
        self._running().kill()
        self.wait()

    def restart(self) -> BrokerProcess:
        """Start again on the same port and data, after a clean stop if it was still running."""
        if self.alive:
            self.stop()
        return self.start()

    def close(self) -> None:
        """Stop the broker, by force if it does not listen."""
        try:
            if self.alive:
                self.stop()
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    def __enter__(self) -> BrokerProcess:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the broker is not running"
        return self._process

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "tidelog.cli.main", "start"]
        if self._properties is not None:
            command.append(str(self._properties))
        command += ["--listen", self.bootstrap, "--data-dir", ",".join(map(str, self.log_dirs))]
        for name, value in self.options.items():
            command += ["--set", f"{name}={value}"]
        return command

    def _env(self) -> dict[str, str]:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **self._environment}
        # Compiling every module anew would take longer than the rest of the start.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return environment
