"""The foreign toolchains: what Maven, Go, npm and apt bring, fetched once and kept in `.compat/`.

Each function returns something runnable or raises `Missing` with the reason, which the fixtures turn into a
skip. A thing is fetched or built again only when the file that describes it changes: its stamp holds the
hash. Called by the fixtures in conftest.py and by the benchmarks.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HERE = Path(__file__).resolve().parent
CACHE = ROOT / ".compat"

FETCH_TIMEOUT_S = 900


class Missing(Exception):
    """A toolchain is not on this machine, or its registry did not answer: the reason to skip."""


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Missing(f"`{name}` is not installed")
    return found


def classpath(name: str) -> str:
    """The class path of the jars that maven/<name>.xml asks for."""
    pom = HERE / "maven" / f"{name}.xml"
    directory = CACHE / "jars" / name
    with _up_to_date(directory, [pom]) as stale:
        if stale:
            _run([program("mvn"), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies",
                  f"-DoutputDirectory={directory}"])  # fmt: skip
    return f"{directory}/*"


def java(name: str, *options: str) -> list[str]:
    """The start of a command line that runs a main class with the jars of maven/<name>.xml."""
    return [
        program("java"),
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        *options,
        "-cp",
        classpath(name),
    ]


def java_driver(jars: str) -> list[str]:
    sources = sorted((HERE / "drivers" / "java").glob("*.java"))
    classes = CACHE / "classes" / jars
    path = classpath(jars)
    with _up_to_date(classes, [*sources, HERE / "maven" / f"{jars}.xml"]) as stale:
        if stale:
            _run([program("javac"), "-d", str(classes), "-cp", path, *map(str, sources)])
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    return [program("java"), *options, "-cp", f"{classes}:{path}", "Driver"]


def go_driver(name: str) -> list[str]:
    source = HERE / "drivers" / name
    directory = CACHE / "go" / name
    with _up_to_date(directory, sorted(source.iterdir())) as stale:
        if stale:
            _run(
                [program("go"), "build", "-buildvcs=false", "-o", str(directory / "driver"), "."], cwd=source
            )
    return [str(directory / "driver")]


def kafkajs_driver() -> list[str]:
    files = sorted((HERE / "drivers" / "kafkajs").iterdir())
    directory = CACHE / "kafkajs"
    with _up_to_date(directory, files) as stale:
        if stale:
            for file in files:
                shutil.copy(file, directory)
            _run([program("npm"), "install", "--no-audit", "--no-fund", "--no-package-lock"], cwd=directory)
    return [program("node"), str(directory / "driver.js")]


def kcat() -> str:
    """kcat, from Debian's package when it is absent and we may install it."""
    for name in ("kcat", "kafkacat"):
        if found := shutil.which(name):
            return found
    _install("kcat", ["kcat"], lambda: shutil.which("kcat") is not None)
    return program("kcat")


def prometheus() -> Path:
    """The directory of Debian's prometheus and promtool; unpacked, not installed, where they are absent."""
    found = shutil.which("prometheus")
    if found is not None and shutil.which("promtool") is not None:
        return Path(found).parent
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise Missing("prometheus is not installed, and there is no apt-get to fetch Debian's package")
    directory = CACHE / "prometheus"
    programs = directory / "usr" / "bin"
    with _exclusive(directory):
        if not (programs / "prometheus").exists():
            _run(["apt-get", "download", "prometheus"], cwd=directory)
            for package in directory.glob("prometheus_*.deb"):
                _run(["dpkg", "-x", str(package), str(directory)])
    return programs


def kerberos() -> None:
    """MIT's KDC and tools, Kerberos for kcat, and the package `gssapi`, from Debian and PyPI when absent.

    The package is kept in `.compat/` and put on this process' path, so that the environment stays one
    without the extra.
    """
    packages = ["krb5-kdc", "krb5-admin-server", "krb5-user", "libkrb5-dev", "libsasl2-modules-gssapi-mit"]
    programs = ("krb5kdc", "kadmin.local", "kdb5_util", "kinit", "krb5-config")
    _install("kerberos", packages, lambda: all(shutil.which(name) for name in programs))
    if importlib.util.find_spec("gssapi") is None:
        directory = CACHE / "gssapi"
        with _exclusive(directory):
            if not (directory / "gssapi").exists():
                _run(
                    [sys.executable, "-m", "pip", "install", "-q", "--target", str(directory), "gssapi>=1.8"]
                )
        sys.path.append(str(directory))
        os.environ["PYTHONPATH"] = os.pathsep.join(
            filter(None, [os.environ.get("PYTHONPATH"), str(directory)])
        )


def _install(name: str, packages: list[str], is_there: Callable[[], bool]) -> None:
    """Debian's packages, where they are absent and we may install them."""
    if is_there():
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise Missing(f"{name} is not installed, and only root with apt-get may install it")
    with _exclusive(CACHE / name):
        if not is_there():
            command = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
            _run(["env", "DEBIAN_FRONTEND=noninteractive", *command])


@contextmanager
def _exclusive(directory: Path) -> Iterator[None]:
    """One process at a time fetches into a directory (pytest-xdist runs several)."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _up_to_date(directory: Path, inputs: list[Path]) -> Iterator[bool]:
    """Yields whether the directory must be filled anew, and stamps it when that went well."""
    digest = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in inputs)).hexdigest()
    stamp = directory / ".stamp"
    with _exclusive(directory):
        stale = not stamp.exists() or stamp.read_text() != digest
        if stale:
            for old in directory.iterdir():
                if old.name != ".lock":
                    shutil.rmtree(old) if old.is_dir() else old.unlink()
        yield stale
        stamp.write_text(digest)


def _run(command: list[str], cwd: Path | None = None) -> None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired as failure:
        raise Missing(f"`{command[0]}` did not end within {FETCH_TIMEOUT_S} s") from failure
    if done.returncode != 0:
        tail = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise Missing(f"`{' '.join(command[:3])} …` failed: {' / '.join(tail)}")
