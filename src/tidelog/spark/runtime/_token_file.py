"""The token of a driver, in a file for all of its processes.

Spark runs the driver's half of a data source in short-lived processes. What they have in common is the local
directory of the application, which Spark removes when that ends; without one (no Spark about) there is no
file. As with Kerberos' tickets, the file is its owner's alone, and one that others could have written, or
read, is not believed.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

_LOCAL_DIRS = "SPARK_LOCAL_DIRS"


@dataclass(frozen=True, slots=True)
class HeldToken:
    """A token, and how long it is good; times are in ms since 1970."""

    token_id: str
    password: str = field(repr=False)
    since_ms: int
    """When it was made, or last renewed."""
    expires_ms: int
    max_ms: int

    @property
    def hmac(self) -> bytes:
        return base64.b64decode(self.password)

    @property
    def period_ms(self) -> int:
        """How long it is good when it is new."""
        return self.expires_ms - self.since_ms

    def is_due(self, now_ms: int) -> bool:
        """Whether half of its time is over."""
        return now_ms >= self.since_ms + self.period_ms // 2

    def is_over(self, now_ms: int) -> bool:
        return now_ms >= self.expires_ms

    def may_be_renewed(self, now_ms: int) -> bool:
        """Whether it can live for a whole period more."""
        return not self.is_over(now_ms) and now_ms + self.period_ms <= self.max_ms

    def renewed(self, now_ms: int, expires_ms: int) -> HeldToken:
        return replace(self, since_ms=now_ms, expires_ms=expires_ms)


class TokenFile:
    """Where the processes of one driver keep the token of one login."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def of_driver(cls, login: Sequence[str]) -> TokenFile | None:
        """The file of this application for a login, which is named by what is no secret of it."""
        directory = os.environ.get(_LOCAL_DIRS, "").split(",")[0]
        if not directory or not Path(directory).is_dir():
            return None
        name = hashlib.sha256("\0".join(login).encode()).hexdigest()[:32]
        return cls(Path(directory) / f"tidelog-token-{name}")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time, so that there is one token."""
        path = self._path.with_name(f"{self._path.name}.lock")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def read(self) -> HeldToken | None:
        """The token; None if there is none, or if others could have touched it."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        with os.fdopen(descriptor) as file:
            found = os.fstat(descriptor)
            if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
                return None
            try:
                return HeldToken(**json.load(file))
            except (ValueError, TypeError):
                return None

    def write(self, token: HeldToken) -> None:
        """Put it there in one step, for nobody else's eyes."""
        beside = self._path.with_name(f"{self._path.name}.new")
        beside.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(beside, flags, 0o600), "w") as file:
            json.dump(asdict(token), file)
        beside.replace(self._path)
