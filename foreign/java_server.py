"""A server that is neither broker nor ours: started, waited for until it answers, stopped.

What :mod:`foreign.cassandra` and :mod:`foreign.keycloak` have in common; both take a minute on Java.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

SHUTDOWN_TIMEOUT_S = 60.0


class JavaServer:
    """One server with all its files below ``directory``; subclasses say how it is started."""

    name: str
    """As people know it."""
    startup_timeout_s: float

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory.absolute()
        self.port = port
        self.output = self.directory / f"{self.name.lower()}.out"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the server and wait until it answers."""
        command = self._command()
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for who runs it, and who ends it in good order.
                start_new_session=True,
            )
        try:
            self._wait_for_answer(self._process)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop in good order, or else by force."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(SHUTDOWN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def wait(self) -> int:
        """Wait until it ends by itself."""
        return self._process.wait() if self._process is not None else 0

    def last_output(self) -> str:
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-30:])

    def _command(self) -> list[str]:
        """What starts it; the files that it needs are there afterwards."""
        raise NotImplementedError

    def _answers(self) -> bool:
        raise NotImplementedError

    def _wait_for_answer(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self.startup_timeout_s
        while not self._answers():
            if process.poll() is not None:
                raise RuntimeError(f"{self.name} ended at start:\n{self.last_output()}")
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{self.name} did not answer within {self.startup_timeout_s:.0f} s:\n{self.last_output()}"
                )
            time.sleep(0.2)
