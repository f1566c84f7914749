"""A broker as a process: started, waited for, stopped, killed, restarted on the same directory and port.

`Tidelog` and `ApacheKafka` (apache_kafka.py) differ in their command line alone, so that every suite and
every benchmark treats both alike. A broker is ready when it answers a Metadata request that names a broker.
"""

from __future__ import annotations

import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from foreign import toolchain
from tidelog.testing.reserved_port import ReservedPort

STARTUP_TIMEOUT_S = 60.0
SHUTDOWN_TIMEOUT_S = 60.0


_RESERVED: list[ReservedPort] = []


def free_port() -> int:
    """A port that no other process is given as long as this one runs, whenever its server listens there."""
    reserved = ReservedPort()
    _RESERVED.append(reserved)
    return reserved.port


class BrokerProcess:
    """One broker on one directory; subclasses say how it is started."""

    label: str
    node_id = 1
    startup_timeout_s = STARTUP_TIMEOUT_S
    tls: ssl.SSLContext | None = None
    """Set where its port speaks TLS."""

    def __init__(self, directory: Path, options: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.options = dict(options or {})
        self.port = free_port()
        self.output = directory / f"{self.label}.out"
        self.process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def data_dir(self) -> Path:
        return self.directory / "data"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self.process is None:
            raise RuntimeError(f"{self.label} is not running")
        return self.process.pid

    def command(self) -> list[str]:
        """What starts the broker."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """The environment it is started in."""
        return dict(os.environ)

    def prepare(self) -> None:
        """What a fresh directory needs before the first start."""

    def start(self) -> None:
        """Start the broker and wait until it serves."""
        self.prepare()
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environment(),
            )
        deadline = time.monotonic() + self.startup_timeout_s
        while not self.serves():
            if self.process.poll() is not None:
                raise RuntimeError(
                    f"{self.label} ended with {self.process.returncode} at start:\n{self.last_output()}"
                )
            if time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(
                    f"{self.label} did not serve within {self.startup_timeout_s} s:\n{self.last_output()}"
                )
            time.sleep(0.005)

    def serves(self) -> bool:
        """Whether the broker answers Metadata v1 with at least one broker; with TLS, whether it answers."""
        metadata = struct.pack(">hhih", 3, 1, 7, -1) + struct.pack(">i", 0)
        api_versions = struct.pack(">hhih", 18, 0, 7, -1)
        request = metadata if self.tls is None else api_versions
        try:
            with self._connect() as connection:
                connection.sendall(struct.pack(">i", len(request)) + request)
                answer = read_exactly(connection, 12)
        except OSError:
            return False
        return self.tls is not None or bool(struct.unpack(">iii", answer)[2] > 0)

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=5)
        if self.tls is None:
            return connection
        return self.tls.wrap_socket(connection, server_hostname="127.0.0.1")

    def stop(self) -> int:
        """Stop in good order; returns the exit code."""
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(SHUTDOWN_TIMEOUT_S)
        self.process = None
        return code

    def kill(self) -> None:
        """kill -9: what a crash of the process leaves."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def process_signal(self, number: signal.Signals) -> None:
        """Send the process any signal."""
        os.kill(self.pid, number)

    def last_output(self) -> str:
        return self.output.read_text(errors="replace")[-4000:]

    def cpu_seconds(self) -> float:
        """CPU that the broker has used: its own to the nanosecond, its ended children's to the tick."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        children = sum(int(field) for field in fields[13:15]) / os.sysconf("SC_CLK_TCK")
        # The kernel's number for "the CPU time of process pid" as a clock, see clock_getcpuclockid(3).
        return time.clock_gettime(~self.pid << 3 | 2) + children

    def rss_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) * 1024


class Tidelog(BrokerProcess):
    """The broker of this checkout, through its own command line."""

    label = "tidelog"

    def command(self) -> list[str]:
        options = {"broker.id": str(self.node_id), **self.options}
        return [
            *(sys.executable, "-m", "tidelog", "start"),
            *("--listen", self.address, "--data-dir", str(self.data_dir)),
            *(part for name, value in options.items() for part in ("--set", f"{name}={value}")),
        ]

    def environment(self) -> dict[str, str]:
        """With compiled modules kept, as an installed package has them, but outside the source tree."""
        inherited = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        return {**inherited, "PYTHONPYCACHEPREFIX": str(toolchain.CACHE / "pycache")}


def read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionError("the broker closed the connection")
        data += chunk
    return data
