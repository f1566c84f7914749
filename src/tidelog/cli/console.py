"""``tidelog console``: look at clusters in a browser, and work with them there. See ``tidelog.console``."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.broker_pages import BrokerPages
from tidelog.cli.connect import client_options
from tidelog.cli.failure import Failure, WrongUsage
from tidelog.cli.output import examples, remark
from tidelog.cli.shared_options import DEFAULT_BOOTSTRAP, DEFAULT_CONNECTION, Connection, grouped

if TYPE_CHECKING:
    from tidelog.client.admin.async_admin import AsyncAdmin
    from tidelog.console.config_file import ConfigFile
    from tidelog.console.settings import ClusterSettings, ConsoleSettings, Listen

EPILOG = examples(
    "tidelog console",
    "tidelog console --cluster test=10.0.0.1:9092 --cluster prod=10.1.0.1:9092",
    "tidelog console --pipelines data/demo",
    "tidelog console --config console.toml --listen 0.0.0.0:8443 --tls-cert c.pem --tls-key k.pem",
)
RUNS_WITHOUT_ARGUMENTS = True

_NEEDED = ("starlette", "uvicorn")


@grouped
def command(
    listen: Annotated[
        str, typer.Option("--listen", "-l", metavar="HOST:PORT", help="Where browsers reach it.")
    ] = "127.0.0.1:8080",
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            "--cluster",
            metavar="NAME=HOST:PORT[,…]",
            help="A cluster and its name in the console; may be repeated.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="A TOML file with clusters, logins, roles and masks."),
    ] = None,
    data_dir: Annotated[
        Path,
        typer.Option("--data-dir", metavar="DIR", help="Where the history and the audit log are kept."),
    ] = Path("data/console"),
    read_only: Annotated[bool, typer.Option("--read-only", help="Let nobody change anything.")] = False,
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes", help="Let people change things beyond loopback, too; they have to log in."
        ),
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host", metavar="NAME", help="A name by which browsers reach it; may be repeated."
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="A certificate chain (PEM).")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key (PEM).")
    ] = None,
    behind_tls: Annotated[
        bool, typer.Option("--behind-tls", help="A proxy in front of it speaks TLS with browsers.")
    ] = False,
    pipelines: Annotated[
        Path | None,
        typer.Option("--pipelines", metavar="DIR", help="The --directory of `tidelog pipeline run`."),
    ] = None,
    checkpoint: Annotated[
        list[Path] | None,
        typer.Option(
            "--checkpoint",
            metavar="DIR",
            help="A Spark query's checkpoint, or a directory of them; may be repeated.",
        ),
    ] = None,
    refresh: Annotated[
        float,
        typer.Option("--refresh", min=0.5, max=3600.0, help="Seconds between two looks at a cluster."),
    ] = 5.0,
    history_days: Annotated[
        float, typer.Option("--history-days", min=0.1, help="How long lag, rates and events are kept.")
    ] = 7.0,
    connection: Connection = DEFAULT_CONNECTION,
) -> int:
    """See topics, records, groups, brokers and Spark's queries in a browser. Ctrl-C ends it.

    Works with any Kafka cluster. Everybody who reaches it may change things while it listens on a loopback
    address; beyond, it is read-only unless --allow-changes is given and --config names a [login].
    """
    _require_extra()
    from tidelog.console.serve import ConsoleServer
    from tidelog.console.service import Console
    from tidelog.console.settings import ConsoleSettings

    file = _config_file(config)
    clusters = _clusters(connection, cluster, file)
    place = _listen(listen, tls_cert, tls_key, behind_tls, allowed_host)
    login = file.login
    if login is not None:
        names = [each.name for each in clusters]
        if login.cluster and login.cluster not in names:
            raise WrongUsage(
                f"--config {config}: login.cluster {login.cluster!r} is none of {', '.join(names)}"
            )
        login = replace(login, cluster=login.cluster or names[0])
    _check_exposure(place, has_login=login is not None, allow_changes=allow_changes, read_only=read_only)
    settings = ConsoleSettings(
        clusters,
        place,
        data_dir,
        read_only or not (place.is_loopback or allow_changes),
        login,
        file.grants,
        file.masks,
        pipelines,
        tuple(checkpoint or ()),
        refresh,
        history_days,
    )
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")

    async def main() -> None:
        console = Console(settings, Telling)
        await ConsoleServer(console, lambda port: _say_ready(settings, port)).run_until_ended()

    asyncio.run(main())
    return 0


class Telling:
    """What brokers tell over HTTP, for the console."""

    def __init__(self, admin: AsyncAdmin) -> None:
        self._pages = BrokerPages(admin)

    async def page(self, path: str) -> tuple[dict[int, dict[str, object]], list[str]]:
        """A page by broker, and why others have none."""
        found = await self._pages.read(path)
        silent = [f"broker {each} has no metrics listener (metrics.listeners)" for each in found.silent]
        return {broker: dict(page) for broker, page in found.by_broker.items()}, [*found.problems, *silent]


def _require_extra() -> None:
    from importlib.util import find_spec

    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise Failure(
            f"the console needs {' and '.join(missing)}: install it with `pip install 'tidelog[console]'`"
        )


def _config_file(path: Path | None) -> ConfigFile:
    from tidelog.console.config_file import ConfigFile, read_config_file

    return ConfigFile() if path is None else read_config_file(path)


def _clusters(
    connection: Connection, named: list[str] | None, file: ConfigFile
) -> tuple[ClusterSettings, ...]:
    """Those of the file, those that are named, and that of --bootstrap-server where it is given or alone."""
    from tidelog.console.settings import ClusterSettings

    found = list(file.clusters)
    for text in named or ():
        name, equals, bootstrap = text.partition("=")
        if not equals or not name.strip() or not bootstrap.strip():
            raise WrongUsage(f"--cluster {text!r} is not of the form NAME=HOST:PORT")
        options = client_options(Connection(bootstrap.strip(), connection.command_config))
        found.append(ClusterSettings(name.strip(), {**options, "client.id": "tidelog-console"}))
    if not found or connection.bootstrap != DEFAULT_BOOTSTRAP:
        options = client_options(connection)
        found.append(ClusterSettings("default", {**options, "client.id": "tidelog-console"}))
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise WrongUsage(f"there are two clusters of the name {name!r}: give one of them another")
        if "/" in name:
            raise WrongUsage(f"the name {name!r} of a cluster has a slash: choose another")
    return tuple(found)


def _listen(
    text: str, cert: Path | None, key: Path | None, behind_tls: bool, hosts: list[str] | None
) -> Listen:
    from tidelog.console.settings import Listen

    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise WrongUsage(f"--listen {text!r} is not of the form HOST:PORT, for example 127.0.0.1:8080")
    if (cert is None) is not (key is None):
        raise WrongUsage("--tls-cert and --tls-key belong together: give both")
    for option, path in (("--tls-cert", cert), ("--tls-key", key)):
        if path is not None and not path.is_file():
            raise WrongUsage(f"{option} {path} is no file")
    return Listen(host, int(port), cert, key, tuple(hosts or ()), behind_tls)


def _check_exposure(place: Listen, *, has_login: bool, allow_changes: bool, read_only: bool) -> None:
    if allow_changes and read_only:
        raise WrongUsage("--allow-changes and --read-only contradict each other: give one of them")
    if place.is_loopback:
        return
    if allow_changes and not has_login:
        raise WrongUsage(
            "--allow-changes beyond loopback needs logins: give a --config with a [login] section"
        )
    if has_login and not place.is_https:
        raise WrongUsage(
            "logins beyond loopback need TLS, or passwords could be read on the way: give --tls-cert and "
            "--tls-key, or --behind-tls where a proxy speaks TLS"
        )


def _say_ready(settings: ConsoleSettings, port: int) -> None:
    names = ", ".join(f"{each.name} ({each.bootstrap})" for each in settings.clusters)
    print(f"The console is ready at {replace(settings.listen, port=port).url}", flush=True)
    remark(f"clusters: {names}{'; read-only' if settings.read_only else ''}")
