"""Keycloak from Maven Central on loopback: the witness of logins by OpenID Connect.

A realm is given as Keycloak's own JSON and taken over at the start; nothing is kept. Needs Java 17.
"""

from __future__ import annotations

import json
import urllib.request
import zipfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from foreign import toolchain
from foreign.broker_process import free_port
from foreign.java_server import JavaServer

PACKAGE = "keycloak-26"


class Keycloak(JavaServer):
    """A server with one realm, all its files below ``directory``; started by ``with``."""

    name = "Keycloak"
    startup_timeout_s = 240.0

    def __init__(self, directory: Path, realm: dict[str, Any]) -> None:
        super().__init__(directory, free_port())
        self._realm = realm

    @property
    def issuer(self) -> str:
        """As it names itself in tokens."""
        return f"http://127.0.0.1:{self.port}/realms/{self._realm['realm']}"

    @property
    def endpoints(self) -> str:
        """What the addresses of tokens and keys begin with."""
        return f"{self.issuer}/protocol/openid-connect"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _command(self) -> list[str]:
        home = self._unpack()
        realms = home / "data" / "import"
        realms.mkdir(parents=True)
        (realms / "realm.json").write_text(json.dumps(self._realm))
        options = ["--http-host=127.0.0.1", f"--http-port={self.port}", "--import-realm"]
        return [str(home / "bin" / "kc.sh"), "start-dev", *options]

    def _unpack(self) -> Path:
        toolchain.program("java")
        packages = Path(toolchain.classpath(PACKAGE).removesuffix("/*"))
        (package,) = packages.glob("keycloak-quarkus-dist-*.zip")
        with zipfile.ZipFile(package) as archive:
            archive.extractall(self.directory)
        (script,) = self.directory.glob("keycloak-*/bin/kc.sh")
        script.chmod(0o755)
        return script.parents[1]

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(
                f"{self.issuer}/.well-known/openid-configuration", timeout=5
            ) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
