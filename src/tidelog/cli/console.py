"""``tidelog console``: look at clusters in a browser, and work with them there. See ``tidelog.console``."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from tidelog import logs
from tidelog.cli.broker_pages import BrokerPages
from tidelog.cli.connect import client_options
from tidelog.cli.failure import Failure, WrongUsage
from tidelog.cli.output import examples, remark
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, grouped

if TYPE_CHECKING:
    from tidelog.client.admin.async_admin import AsyncAdmin
    from tidelog.console.config_file import ConfigFile
    from tidelog.console.settings import ClusterSettings, ConsoleSettings, Listen, LoginSettings

EPILOG = examples(
    "tidelog console",
    "tidelog console --cluster test=10.0.0.1:9092 --cluster prod=10.1.0.1:9092",
    "tidelog console --pipelines data/demo",
    "tidelog console --config console.toml --listen 0.0.0.0:8443 --tls-cert c.pem --tls-key k.pem",
)
RUNS_WITHOUT_ARGUMENTS = True

_NEEDED = ("starlette", "uvicorn", "httpx", "fastavro", "google.protobuf", "proto_schema_parser", "cbor2")


@dataclass(frozen=True)
class PlaceOptions:
    """Where the console listens, how browsers reach it, and what strangers may do there."""

    listen: Annotated[
        str, typer.Option("--listen", "-l", metavar="HOST:PORT", help="The address to listen on.")
    ] = "127.0.0.1:8080"
    read_only: Annotated[bool, typer.Option("--read-only", help="Disable all changes.")] = False
    allow_changes: Annotated[
        bool,
        typer.Option("--allow-changes", help="Allow changes on non-loopback addresses too; requires logins."),
    ] = False
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host", metavar="NAME", help="A host name that browsers use; may be repeated."
        ),
    ] = None
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="A certificate chain (PEM).")
    ] = None
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="The private key of --tls-cert (PEM).")
    ] = None
    behind_tls: Annotated[
        bool, typer.Option("--behind-tls", help="A TLS proxy runs in front of the console.")
    ] = False

    def checked(self) -> Listen:
        """The place; raises ``WrongUsage``."""
        from tidelog.console.settings import Listen

        host, colon, port = self.listen.rpartition(":")
        if not colon or not host or not port.isdecimal() or int(port) > 65535:
            raise WrongUsage(
                f"--listen {self.listen!r} is not of the form HOST:PORT, for example 127.0.0.1:8080"
            )
        if (self.tls_cert is None) is not (self.tls_key is None):
            raise WrongUsage("--tls-cert and --tls-key must be used together")
        for option, path in (("--tls-cert", self.tls_cert), ("--tls-key", self.tls_key)):
            if path is not None and not path.is_file():
                raise WrongUsage(f"{option} {path} is not a file")
        hosts = tuple(self.allowed_host or ())
        return Listen(host, int(port), self.tls_cert, self.tls_key, hosts, self.behind_tls)


@dataclass(frozen=True)
class WatchOptions:
    """Which clusters and queries the console shows, and what it keeps of them."""

    cluster: Annotated[
        list[str] | None,
        typer.Option(
            "--cluster",
            metavar="NAME=HOST:PORT[,…]",
            help="A cluster, with its name in the console; may be repeated.",
        ),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="A TOML file with clusters, logins, roles and masks."),
    ] = None
    data_dir: Annotated[
        Path,
        typer.Option("--data-dir", metavar="DIR", help="The directory for the history and the audit log."),
    ] = Path("data/console")
    mcp: Annotated[
        bool, typer.Option("--mcp", help="Also serve AI assistants at /mcp (Model Context Protocol).")
    ] = False
    schema_registry: Annotated[
        str | None,
        typer.Option(
            "--schema-registry",
            metavar="URL",
            help="The schema registry of the cluster; for several clusters, set it in --config.",
        ),
    ] = None
    pipelines: Annotated[
        Path | None,
        typer.Option("--pipelines", metavar="DIR", help="The --directory of `tidelog pipeline run`."),
    ] = None
    checkpoint: Annotated[
        list[Path] | None,
        typer.Option(
            "--checkpoint",
            metavar="DIR",
            help="A Spark query's checkpoint, or a directory of them; may be repeated.",
        ),
    ] = None
    refresh: Annotated[
        float,
        typer.Option("--refresh", min=0.5, max=3600.0, help="The polling interval in seconds."),
    ] = 5.0
    history_days: Annotated[
        float, typer.Option("--history-days", min=0.1, help="How many days to keep lag, rates and events.")
    ] = 7.0


DEFAULT_PLACE = PlaceOptions()
DEFAULT_WATCH = WatchOptions()


@grouped
def command(
    place: PlaceOptions = DEFAULT_PLACE,
    watch: WatchOptions = DEFAULT_WATCH,
    connection: Connection = DEFAULT_CONNECTION,
) -> int:
    """See topics, records, groups, brokers and Spark's queries in a browser. Ctrl-C ends it.

    Works with any Kafka cluster. Everybody who reaches it may change things while it listens on a loopback
    address; beyond, it is read-only unless --allow-changes is given and --config names a [login].
    """
    _require_extra()
    from tidelog.console.serve import ConsoleServer
    from tidelog.console.service import Console

    settings = _settings(place, watch, connection)
    logs.set_up(level=logging.WARNING)

    async def main() -> None:
        console = Console(settings, Telling)
        await ConsoleServer(console, lambda port: _say_ready(settings, port)).run_until_ended()

    asyncio.run(main())
    return 0


def _settings(place: PlaceOptions, watch: WatchOptions, connection: Connection) -> ConsoleSettings:
    """What the options and the file say together; raises ``WrongUsage``."""
    from tidelog.console.settings import ConsoleSettings, McpSettings

    file = _config_file(watch.config)
    clusters = _with_registry(_clusters(connection, watch.cluster, file), watch.schema_registry)
    listen = place.checked()
    login = file.login
    if login is not None:
        names = [each.name for each in clusters]
        if login.cluster and login.cluster not in names:
            raise WrongUsage(
                f"--config {watch.config}: invalid login.cluster {login.cluster!r}: choose from "
                f"{', '.join(names)}"
            )
        login = replace(login, cluster=login.cluster or names[0])
    mcp = file.mcp or (McpSettings() if watch.mcp else None)
    _check_exposure(place, listen, login, has_mcp=mcp is not None)
    return ConsoleSettings(
        clusters,
        listen,
        watch.data_dir,
        place.read_only or not (listen.is_loopback or place.allow_changes),
        login,
        file.grants,
        file.masks,
        watch.pipelines,
        tuple(watch.checkpoint or ()),
        watch.refresh,
        watch.history_days,
        mcp,
    )


class Telling:
    """What brokers tell over HTTP, for the console."""

    def __init__(self, admin: AsyncAdmin) -> None:
        self._pages = BrokerPages(admin)

    async def page(self, path: str) -> tuple[dict[int, dict[str, object]], list[str]]:
        """A page by broker, and why others have none."""
        found = await self._pages.read(path)
        silent = [f"broker {each} has no metrics listener (metrics.listeners)" for each in found.silent]
        return {broker: dict(page) for broker, page in found.by_broker.items()}, [*found.problems, *silent]


def _is_installed(name: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # of what it is in
        return False


def _require_extra() -> None:
    missing = [name for name in _NEEDED if not _is_installed(name)]
    if missing:
        raise Failure(f"the console requires {', '.join(missing)}: run `pip install 'tidelog[console]'`")


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
    if not found or connection.bootstrap is not None:
        options = client_options(connection)
        found.append(ClusterSettings("default", {**options, "client.id": "tidelog-console"}))
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise WrongUsage(f"two clusters are named {name!r}: rename one of them")
        if "/" in name:
            raise WrongUsage(f"cluster name {name!r} contains a slash: choose another name")
    return tuple(found)


def _with_registry(clusters: tuple[ClusterSettings, ...], url: str | None) -> tuple[ClusterSettings, ...]:
    from tidelog.console.registry_settings import registry_settings

    if url is None:
        return clusters
    if len(clusters) > 1:
        raise WrongUsage(
            f"--schema-registry works with one cluster only, got {len(clusters)}: set each registry "
            "in --config, in [clusters.NAME.registry]"
        )
    if clusters[0].registry is not None:
        raise WrongUsage("--schema-registry and --config both set a registry: use only one of them")
    return (replace(clusters[0], registry=registry_settings(url, "--schema-registry: ")),)


def _check_exposure(
    place: PlaceOptions, listen: Listen, login: LoginSettings | None, *, has_mcp: bool
) -> None:
    if place.allow_changes and place.read_only:
        raise WrongUsage("--allow-changes and --read-only are mutually exclusive")
    # What a proxy hands on to a loopback address comes from beyond.
    if has_mcp and login is None and (listen.behind_tls or not listen.is_loopback):
        raise WrongUsage(
            "--mcp and [mcp] require logins on non-loopback addresses, because assistants send "
            "tokens: add a [login] section to --config, or disable them"
        )
    if login is not None and login.oidc is not None:
        _check_redirect(listen, login.oidc.redirect_url)
    if listen.is_loopback:
        return
    if place.allow_changes and login is None:
        raise WrongUsage(
            "--allow-changes requires logins on non-loopback addresses: add a [login] section to --config"
        )
    if login is not None and not listen.is_https:
        raise WrongUsage(
            "logins on non-loopback addresses require TLS to protect passwords: set --tls-cert and "
            "--tls-key, or --behind-tls for a TLS proxy"
        )


def _check_redirect(listen: Listen, url: str) -> None:
    """The provider sends browsers to this address: they have to get through to us there, and by TLS."""
    from tidelog.console.web import is_known_host

    if not url:
        if listen.is_loopback and not listen.behind_tls:
            return
        raise WrongUsage(
            "login.oidc.redirect_url is missing in --config: set it to the console's URL as seen by "
            "browsers, such as https://console.example.org/login/oidc"
        )
    parts = urlsplit(url)
    if parts.scheme == "https" and not listen.is_https:
        raise WrongUsage(
            "login.oidc.redirect_url uses https, but TLS is not enabled: set --tls-cert and "
            "--tls-key, or --behind-tls for a TLS proxy"
        )
    if not is_known_host(parts.netloc, listen):
        raise WrongUsage(
            f"login.oidc.redirect_url has the host {parts.hostname}, which the console does not "
            f"serve: add --allowed-host {parts.hostname}"
        )


def _say_ready(settings: ConsoleSettings, port: int) -> None:
    names = ", ".join(f"{each.name} ({each.bootstrap})" for each in settings.clusters)
    print(f"The console is ready at {replace(settings.listen, port=port).url}", flush=True)
    assistants = "; assistants at /mcp" if settings.mcp is not None else ""
    remark(f"clusters: {names}{'; read-only' if settings.read_only else ''}{assistants}")
