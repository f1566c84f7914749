"""A realm of Kerberos with one KDC (MIT's) on a port of loopback and all its files in one directory.

    with Realm(directory) as realm:
        keytab = realm.keytab("alice")
        with realm.environment():
            ...     # this process and those that it starts, Java's too, know the realm

Nothing of the machine's own Kerberos is read or written: `KRB5_CONFIG` and its like name other files.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from unittest import mock

from foreign import toolchain
from foreign.broker_process import free_port

REALM = "TIDELOG.TEST"
START_TIMEOUT_S = 30.0

_KRB5_CONF = """
[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
 clockskew = {clockskew}
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
[domain_realm]
 localhost = {realm}
"""

_KDC_CONF = """
[kdcdefaults]
 kdc_listen = ""
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {realm} = {{
  database_name = {directory}/principal
  key_stash_file = {directory}/stash
  acl_file = {directory}/acl
  supported_enctypes = aes256-cts-hmac-sha1-96:normal
 }}
"""


class Realm:
    """Principals, their keys, and the process that gives tickets."""

    def __init__(self, directory: Path) -> None:
        """Raises :class:`toolchain.Missing`."""
        toolchain.kerberos()
        self.directory = directory
        self._port = free_port()
        self._kdc: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        self.config = self.config_with(300)
        settings = _KDC_CONF.format(realm=REALM, port=self._port, directory=directory)
        (directory / "kdc.conf").write_text(settings)

    def __enter__(self) -> Realm:
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        with (self.directory / "kdc.log").open("wb") as log:
            command = [toolchain.program("krb5kdc"), "-n", "-P", str(self.directory / "kdc.pid")]
            self._kdc = subprocess.Popen(command, env=self._variables(), stdout=log, stderr=log)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self._kdc.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the KDC did not start: {(self.directory / 'kdc.log').read_text()}")
            time.sleep(0.02)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._kdc is not None:
            self._kdc.terminate()
            self._kdc.wait(START_TIMEOUT_S)

    def config_with(self, clockskew_s: int) -> Path:
        """A `krb5.conf` of the realm that lets clocks differ by so much."""
        path = self.directory / f"krb5-{clockskew_s}.conf"
        path.write_text(_KRB5_CONF.format(realm=REALM, port=self._port, clockskew=clockskew_s))
        return path

    def keytab(self, principal: str) -> Path:
        """The file with the key of a principal, which is made if there is none."""
        path = self.directory / f"{principal.replace('/', '-')}.keytab"
        if not path.exists():
            self._run("kadmin.local", "-q", f"addprinc -randkey {principal}")
            self._run("kadmin.local", "-q", f"ktadd -k {path} {principal}")
        return path

    def new_key(self, principal: str) -> Path:
        """A file with a new key of a principal, which makes those before it worth nothing."""
        path = self.directory / f"{principal.replace('/', '-')}-new.keytab"
        self._run("kadmin.local", "-q", f"ktadd -k {path} {principal}")
        return path

    def tickets(self, principal: str, keytab: Path, lifetime_s: int = 3600) -> str:
        """A cache with a principal's ticket, as `kinit` leaves it."""
        cache = f"FILE:{keytab}.tickets-{lifetime_s}"
        self._run("kinit", "-k", "-t", str(keytab), "-c", cache, "-l", f"{lifetime_s}s", principal)
        return cache

    @contextmanager
    def environment(self) -> Iterator[None]:
        """This process, and those that it starts, are in the realm."""
        with mock.patch.dict(os.environ, self._variables()):
            yield

    def _variables(self) -> dict[str, str]:
        return {
            **os.environ,
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.directory}/nobody's tickets",
            "KRB5RCACHENAME": f"file2:{self.directory}/replays",
            "JAVA_TOOL_OPTIONS": f"-Djava.security.krb5.conf={self.config}",
        }

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            [toolchain.program(name), *arguments], env=self._variables(), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
