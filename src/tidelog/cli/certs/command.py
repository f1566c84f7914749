"""``tidelog certs``: certificates to develop and test with, and the property files to use them.

``init`` writes a directory: an authority, a server's and clients' keys with certificates (PEM), and
properties for a broker, for Tidelog's and Java's clients, and for librdkafka's. What has a private key in it
is for its owner's eyes only.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.failure import Failure, WrongUsage
from tidelog.cli.output import examples, remark

if TYPE_CHECKING:
    from tidelog.cli.certs.authority import Issued

app = typer.Typer()

_PRIVATE, _PUBLIC = 0o600, 0o644
_LOCAL = ("localhost", "127.0.0.1", "::1")
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@app.callback()
def group() -> None:
    """Certificates to develop and test with."""


@app.command(
    no_args_is_help=True,
    epilog=examples(
        "tidelog certs init ./tls",
        "tidelog certs init ./tls --host broker1.test --client alice --client bob",
        "tidelog start ./tls/server.properties",
    ),
)
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The output directory.")],
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="NAME",
            help="A host name or address of the server, in addition to localhost; may be repeated.",
        ),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(
            "--client", metavar="NAME", help="A client to create a certificate for; may be repeated."
        ),
    ] = None,
    port: Annotated[int, typer.Option("--port", help="The broker port in the property files.")] = 9093,
    days: Annotated[
        int, typer.Option("--days", min=1, max=36_500, help="How many days certificates are valid.")
    ] = 825,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite existing files, including the certificate authority.")
    ] = False,
) -> None:
    """Make an authority, certificates for a server and for clients, and property files."""
    clients = client or ["client"]
    for name in clients:
        if not name or not set(name) <= _NAME_CHARACTERS or name in ("ca", "server"):
            raise WrongUsage(
                f"--client {name!r} is not a valid file name: use letters, digits, dots and dashes"
            )
    for name in host or []:
        if not name or not name.isascii() or not name.isprintable() or " " in name:
            raise WrongUsage(
                f"--host {name!r} is not a valid host name: use ASCII, and the xn--… form for other "
                "characters"
            )
    from tidelog.cli.certs.authority import LONGEST_NAME_BYTES, Authority

    for name in clients:
        # A client is known by its common name, which must not be cut.
        if len(name) > LONGEST_NAME_BYTES:
            raise WrongUsage(f"--client {name!r} is too long: use at most {LONGEST_NAME_BYTES} characters")
    authority = Authority.create(f"Tidelog development authority of {os.uname().nodename}")
    server = authority.issue((host or ["localhost"])[0], [*(host or []), *_LOCAL], days=days)
    layout = _Layout(directory.absolute(), (host or ["localhost"])[0], port)
    files: dict[str, tuple[str, int]] = {
        "ca.key": (authority.own.key_pem, _PRIVATE),
        "ca.pem": (authority.own.certificate_pem, _PUBLIC),
        "server.pem": (_pair(server), _PRIVATE),
        "server.properties": (layout.server(local_only=not host), _PUBLIC),
    }
    for name in clients:
        files[f"{name}.pem"] = (_pair(authority.issue(name, days=days)), _PRIVATE)
        files[f"{name}.properties"] = (layout.client(name), _PUBLIC)
        files[f"{name}.librdkafka.properties"] = (layout.librdkafka(name), _PUBLIC)
    _write(directory, files, force=force)
    for name in files:
        print(directory / name)
    _tell_what_next(directory, clients[0])


def _pair(issued: Issued) -> str:
    return issued.key_pem + issued.certificate_pem


class _Layout:
    """Who finds what where."""

    def __init__(self, directory: Path, host: str, port: int) -> None:
        self._directory = directory
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._port = port

    def server(self, *, local_only: bool) -> str:
        if local_only:
            listeners = f"listeners=SSL://{self.address}\n"
        else:
            listeners = f"listeners=SSL://:{self._port}\nadvertised.listeners=SSL://{self.address}\n"
        return f"""\
# A broker with TLS that requires client certificates: add this to server.properties.
{listeners}security.inter.broker.protocol=SSL
ssl.keystore.type=PEM
ssl.keystore.location={self._directory / "server.pem"}
ssl.truststore.type=PEM
ssl.truststore.location={self._directory / "ca.pem"}
ssl.client.auth=required
# A client is known by the common name of its certificate: User:client.
ssl.principal.mapping.rules=RULE:^CN=([^,]+).*$/$1/,DEFAULT
"""

    def client(self, name: str) -> str:
        return f"""\
# For Tidelog's clients and Java's, for `tidelog produce --command-config` and Kafka's own tools.
bootstrap.servers={self.address}
security.protocol=SSL
ssl.truststore.type=PEM
ssl.truststore.location={self._directory / "ca.pem"}
ssl.keystore.type=PEM
ssl.keystore.location={self._directory / name}.pem
"""

    def librdkafka(self, name: str) -> str:
        return f"""\
# For librdkafka and clients based on it: confluent-kafka, kcat (-F), …
bootstrap.servers={self.address}
security.protocol=SSL
ssl.ca.location={self._directory / "ca.pem"}
ssl.certificate.location={self._directory / name}.pem
ssl.key.location={self._directory / name}.pem
"""


def _write(directory: Path, files: dict[str, tuple[str, int]], *, force: bool) -> None:
    there = sorted(name for name in files if (directory / name).exists())
    if there and not force:
        raise Failure(
            f"{directory} already contains {', '.join(there)}: choose another directory, or overwrite "
            "with --force"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, (text, mode) in files.items():
            beside = directory / f".{name}.new"
            beside.unlink(missing_ok=True)
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
            beside.replace(directory / name)
    except OSError as error:
        raise Failure(
            f"{error.filename}: {(error.strerror or str(error)).lower()}; choose a writable directory"
        ) from error


def _tell_what_next(directory: Path, client: str) -> None:
    remark(
        f"""
Start a broker with these files and connect to it:
  tidelog start {directory / "server.properties"}
  export TIDELOG_COMMAND_CONFIG={directory.absolute() / client}.properties
  tidelog topics create greetings
  echo hello | tidelog produce greetings
  tidelog consume greetings --from-beginning

These are for development: whoever has ca.key can be anybody. New certificates in the same files are used
without a restart; --force makes a new authority, too."""
    )
