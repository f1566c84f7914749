"""Keycloak from Maven Central on loopback: the witness of logins by OpenID Connect.

A realm is given as Keycloak's own JSON and taken over at the start; nothing is kept. Needs Java 17.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
import zipfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from foreign import toolchain
from foreign.broker_process import free_port

STARTUP_TIMEOUT_S = 240.0
SHUTDOWN_TIMEOUT_S = 60.0
PACKAGE = "keycloak-26"


class Keycloak:
    """A server with one realm, all its files below ``directory``; started by ``with``."""

    def __init__(self, directory: Path, realm: dict[str, Any]) -> None:
        self.port = free_port()
        self.output = directory / "keycloak.out"
        self._directory = directory
        self._realm = realm
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def issuer(self) -> str:
        """As it names itself in tokens."""
        return f"http://127.0.0.1:{self.port}/realms/{self._realm['realm']}"

    @property
    def endpoints(self) -> str:
        """What the addresses of tokens and keys begin with."""
        return f"{self.issuer}/protocol/openid-connect"

    def __enter__(self) -> Self:
        home = self._unpack()
        realms = home / "data" / "import"
        realms.mkdir(parents=True)
        (realms / "realm.json").write_text(json.dumps(self._realm))
        options = ["--http-host=127.0.0.1", f"--http-port={self.port}", "--import-realm"]
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(
                [str(home / "bin" / "kc.sh"), "start-dev", *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _unpack(self) -> Path:
        toolchain.program("java")
        packages = Path(toolchain.classpath(PACKAGE).removesuffix("/*"))
        (package,) = packages.glob("keycloak-quarkus-dist-*.zip")
        with zipfile.ZipFile(package) as archive:
            archive.extractall(self._directory)
        (script,) = self._directory.glob("keycloak-*/bin/kc.sh")
        script.chmod(0o755)
        return script.parents[1]

    def _wait(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + STARTUP_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None:
                raise RuntimeError(f"Keycloak ended at start:\n{self._last_output()}")
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"Keycloak did not answer within {STARTUP_TIMEOUT_S:.0f} s:\n{self._last_output()}"
                )
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(
                f"{self.issuer}/.well-known/openid-configuration", timeout=5
            ) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(SHUTDOWN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _last_output(self) -> str:
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-30:])
