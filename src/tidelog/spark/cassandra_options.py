"""How pipelines talk to Cassandra and what they ask of it: every option declared once, checked before Spark.

Names and values come from ``--cassandra-config`` (a properties file) and ``--cassandra-set``; the reference
page is printed from :data:`OPTIONS`. :class:`CassandraOptions` is what becomes of them: plain values that
travel to Spark's tasks, which connect by themselves. The password is one of them, and is shown nowhere: not
in a representation, not in a plan or setting of Spark, and not on a command line, where it is refused.

Nothing here imports the driver or Spark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from tidelog.errors import ConfigError
from tidelog.options import Check, ConfigDef, TypedValues, invalid, one_of, option

T = TypeVar("T")

PASSWORD_VARIABLE = "TIDELOG_CASSANDRA_PASSWORD"
DEFAULT_PORT = 9042
MAX_TTL_S = 20 * 365 * 86_400
"""Cassandra's own bound."""

_KEYSPACE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}")
_SIMPLE = "SimpleStrategy"
_NETWORK = "NetworkTopologyStrategy"
_DURATION = re.compile(r"([1-9][0-9]{0,8})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_WINDOW_UNITS = {"m": "MINUTES", "h": "HOURS", "d": "DAYS"}
_LEVELS = ("LOCAL_ONE", "ONE", "TWO", "THREE", "LOCAL_QUORUM", "QUORUM", "ALL")

_READS_AFTER: Mapping[str, tuple[str, ...]] = {
    "ALL": _LEVELS,
    "EACH_QUORUM": ("LOCAL_QUORUM", "QUORUM", "ALL"),
    "QUORUM": ("QUORUM", "ALL"),
    "LOCAL_QUORUM": ("LOCAL_QUORUM", "ALL"),
    "THREE": ("ALL",),
    "TWO": ("ALL",),
    "ONE": ("ALL",),
    "LOCAL_ONE": ("ALL",),
}
"""For each consistency of writes those of reads that meet at least one replica which has the write, however
many replicas and data centres there are."""


@dataclass(frozen=True, slots=True)
class ContactPoints:
    """Where to find the cluster."""

    addresses: tuple[tuple[str, int], ...]

    @staticmethod
    def parse(text: str) -> ContactPoints:
        """Read ``host[:port],…``; IPv6 addresses stand in brackets."""
        addresses = []
        for part in filter(None, (part.strip() for part in text.split(","))):
            host, bracket, rest = part[1:].partition("]") if part.startswith("[") else (part, "", "")
            if not bracket:
                host, _, rest = part.partition(":")
                rest = f":{rest}" if rest else ""
            port = rest.removeprefix(":")
            if not host or (rest and not (rest.startswith(":") and port.isdecimal())):
                raise ConfigError(f"{part!r} is no contact point of Cassandra: write host or host:port")
            if port and not 0 < int(port) < 65_536:
                raise ConfigError(f"{part!r} is no contact point of Cassandra: ports go from 1 to 65535")
            addresses.append((host, int(port) if port else DEFAULT_PORT))
        if not addresses:
            raise ConfigError("no contact point of Cassandra is given: write host[:port],…")
        return ContactPoints(tuple(addresses))

    def __str__(self) -> str:
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.addresses
        )


class Window(NamedTuple):
    """The span of time whose rows Cassandra keeps in files of their own."""

    size: int
    unit: str


class Replication(NamedTuple):
    """How a keyspace is replicated: a strategy, and copies by data centre (or ``replication_factor``)."""

    strategy: str
    factors: tuple[tuple[str, int], ...]

    @property
    def cql(self) -> str:
        """As ``CREATE KEYSPACE`` wants it."""
        factors = "".join(f", '{name}': {count}" for name, count in self.factors)
        return f"{{'class': '{self.strategy}'{factors}}}"


@dataclass(frozen=True, slots=True)
class CassandraOptions:
    """The options, typed; goes to tasks. Made by :func:`cassandra_options`, or as it is in a program."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    check_hostname: bool = True
    read_consistency: str = "LOCAL_QUORUM"
    write_consistency: str = "LOCAL_QUORUM"
    local_datacenter: str | None = None
    replication: Replication | None = None
    ttl_s: tuple[tuple[str, int], ...] = ()
    windows: tuple[tuple[str, Window], ...] = ()

    def ttl_of(self, table: str) -> int | None:
        """After how many seconds the rows of a table go; None leaves the table as it is."""
        return dict(self.ttl_s).get(table)

    def window_of(self, table: str) -> Window | None:
        """The window of a table's compaction; None leaves the table as it is."""
        return dict(self.windows).get(table)

    def require_reading_own_writes(self, who: str) -> None:
        """Refuse consistencies with which a read may miss an acknowledged write."""
        allowed = _READS_AFTER[self.write_consistency]
        if self.read_consistency not in allowed:
            raise ConfigError(
                f"consistency.read={self.read_consistency} may miss what was written with consistency.write="
                f"{self.write_consistency}, and {who} must read what it has written: set consistency.read to "
                f"{' or '.join(allowed)}, or leave both at LOCAL_QUORUM"
            )


def _tables_with(describe: str, parse: Callable[[str], object | None]) -> Check:
    """A list of ``table:value``, or one value for all tables of events. :func:`_check_names` checks names."""

    def refuse(name: str, value: object) -> None:
        assert isinstance(value, tuple)
        for item in value:
            _, colon, text = item.rpartition(":")
            if not colon and len(value) > 1:
                raise invalid(name, item, "name the table, as in login:30d, or give one value for all")
            if parse(text) is None:
                raise invalid(name, item, f"write {describe}")
        tables = [item.rpartition(":")[0] for item in value]
        if len(set(tables)) < len(tables):
            raise invalid(name, value, "a table is named twice")

    return Check(describe, refuse)


def _check_names(name: str, items: Sequence[str], tables: Sequence[str]) -> None:
    """Refuse tables whose rows must not expire."""
    for item in items:
        table, colon, _ = item.rpartition(":")
        if colon and table not in tables:
            others = f"; those of {', '.join(tables)} may go, since nothing is computed from them"
            raise invalid(name, item, f"rows of table {table} must stay{others if tables else ''}")


def _ttl(text: str) -> int | None:
    found = _DURATION.fullmatch(text)
    seconds = int(found[1]) * _SECONDS[found[2]] if found else 0
    return seconds if 0 < seconds <= MAX_TTL_S else None


def _window(text: str) -> Window | None:
    found = _DURATION.fullmatch(text)
    return Window(int(found[1]), _WINDOW_UNITS[found[2]]) if found and found[2] in _WINDOW_UNITS else None


def _replication(text: tuple[str, ...]) -> Replication | None:
    """``dc1:3,dc2:2`` or ``SimpleStrategy:2``; None where it is neither."""
    factors: dict[str, int] = {}
    for item in text:
        name, _, count = item.rpartition(":")
        if not re.fullmatch(r"[A-Za-z0-9_.\-]+", name) or not re.fullmatch(r"[1-9][0-9]?", count):
            return None
        factors[name] = int(count)
    if len(factors) < len(text):
        return None
    if _SIMPLE in factors:
        simple = Replication(_SIMPLE, (("replication_factor", factors[_SIMPLE]),))
        return simple if len(factors) == 1 else None
    return Replication(_NETWORK, tuple(sorted(factors.items())))


def _refuse_replication(name: str, value: object) -> None:
    assert isinstance(value, tuple)
    if value and _replication(value) is None:
        raise invalid(name, value, "write dc1:3,dc2:2, or SimpleStrategy:2")


OPTIONS = ConfigDef(
    [
        option("user", "string", None, "Who logs in; none where Cassandra asks nobody."),
        option(
            "password", "password", None,
            f"The user's password: in the file of options, or in the environment as `{PASSWORD_VARIABLE}`; "
            "refused on the command line, where everybody on the machine could read it.",
        ),
        option("password.file", "string", None, "A file whose first line is the password, instead."),
        option("tls.enabled", "boolean", False, "Whether to talk to Cassandra by TLS."),
        option(
            "tls.ca.file", "string", None,
            "PEM certificates of the authorities that nodes are trusted by; those of the system if none.",
        ),
        option("tls.certificate.file", "string", None, "One's own PEM certificate, where nodes want one."),
        option("tls.key.file", "string", None, "The PEM key of that certificate, without a password."),
        option(
            "tls.check.hostname", "boolean", True,
            "Whether a node's certificate must name the address by which it is reached.",
        ),
        option(
            "consistency.read", "string", "LOCAL_QUORUM",
            "How many replicas answer a read. `earnings` refuses pairs with which a read may miss a write.",
            one_of(*_LEVELS),
        ),
        option(
            "consistency.write", "string", "LOCAL_QUORUM", "How many replicas acknowledge a write.",
            one_of(*_READS_AFTER),
        ),
        option(
            "local.datacenter", "string", None,
            "The data centre whose nodes are asked, and which LOCAL_… means; may be left out where there is "
            "one only.",
        ),
        option(
            "replication", "list", (),
            "Copies in each data centre (`dc1:3,dc2:2`), or `SimpleStrategy:2`, of a keyspace that is made; "
            "one that is there keeps its own. If not set, in each data centre as many as there are nodes, "
            "3 at most.",
            Check("dc1:3,dc2:2 or SimpleStrategy:2", _refuse_replication),
        ),
        option(
            "ttl", "list", (),
            "When rows of tables of events go: `30d` for all, or `login:30d,exposure:7d`. Counted from the "
            "moment a row is written. Ledgers and what follows from them keep their rows.",
            _tables_with("a time of at most 20 years, as 12h or 30d", _ttl),
        ),
        option(
            "compaction.window", "list", (),
            "Compaction of tables of events by windows of time (TimeWindowCompactionStrategy): `1d` for all, "
            "or `login:1d,exposure:6h`.",
            _tables_with("a window, as 30m, 6h or 1d", _window),
        ),
    ]
)  # fmt: skip
"""All of them, in the order of the reference page."""


class _Values(TypedValues):
    def __init__(self, raw: Mapping[str, str | None]) -> None:
        self._values = OPTIONS.parse(raw)


def cassandra_options(
    given: Mapping[str, str],
    environment: Mapping[str, str] = os.environ,
    expiring_tables: Sequence[str] = (),
) -> CassandraOptions:
    """The options that are given by name, and the password that the environment holds.

    ``expiring_tables``: tables of events, whose rows may expire since nothing is computed from them.

    :raises ConfigError: one sentence about what is unknown, wrong, or does not go together.
    """
    for name in given:
        if name not in OPTIONS:
            near = OPTIONS.suggest(name)
            hint = f"did you mean {near}?" if near else f"there are {', '.join(OPTIONS)}"
            raise ConfigError(f"there is no option {name!r} for Cassandra; {hint}")
    values = _Values(given)
    for name in ("ttl", "compaction.window"):
        _check_names(name, values.list(name), expiring_tables)
    replication = values.list("replication")
    options = CassandraOptions(
        user=values.optional_str("user"),
        password=_password(values, environment),
        tls=values.bool("tls.enabled"),
        ca_file=_file(values, "tls.ca.file"),
        certificate_file=_file(values, "tls.certificate.file"),
        key_file=_file(values, "tls.key.file"),
        check_hostname=values.bool("tls.check.hostname"),
        read_consistency=values.str("consistency.read"),
        write_consistency=values.str("consistency.write"),
        local_datacenter=values.optional_str("local.datacenter"),
        replication=_replication(replication) if replication else None,
        ttl_s=_by_table(values.list("ttl"), _ttl, expiring_tables),
        windows=_by_table(values.list("compaction.window"), _window, expiring_tables),
    )
    _check_together(options, given)
    return options


def _check_together(options: CassandraOptions, given: Mapping[str, str]) -> None:
    if options.user is not None and options.password is None:
        raise ConfigError(
            f"user={options.user} of Cassandra has no password: set password.file, or {PASSWORD_VARIABLE} in "
            "the environment"
        )
    if options.user is None and ("password" in given or "password.file" in given):
        raise ConfigError("a password for Cassandra is given without a user: set user")
    of_tls = [name for name in given if name.startswith("tls.") and name != "tls.enabled"]
    if of_tls and not options.tls:
        raise ConfigError(f"{of_tls[0]} has no effect without TLS: set tls.enabled=true")
    if (options.certificate_file is None) != (options.key_file is None):
        raise ConfigError("tls.certificate.file and tls.key.file belong together: set both or none")


def _password(values: _Values, environment: Mapping[str, str]) -> str | None:
    """Out of the options, else out of the file, else, for who has a user, out of the environment."""
    direct, file = values.optional_str("password"), values.optional_str("password.file")
    if direct is not None and file is not None:
        raise ConfigError("password and password.file of Cassandra are both given: keep one of them")
    if file is not None:
        lines = _read(file, "password.file").splitlines()
        if not lines or not lines[0]:
            raise ConfigError(f"password.file {file} is empty: write the password into its first line")
        return lines[0]
    if direct is not None:
        return direct
    return environment.get(PASSWORD_VARIABLE) or None if values.optional_str("user") else None


def _file(values: _Values, name: str) -> str | None:
    """The absolute path of a file that can be read: tasks run in other directories."""
    path = values.optional_str(name)
    if path is None:
        return None
    _read(path, name)
    return str(Path(path).absolute())


def _read(path: str, name: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"{name} {path} cannot be read: {why}; give the path of a file") from error


def _by_table(
    items: tuple[str, ...], parse: Callable[[str], T | None], tables: Sequence[str]
) -> tuple[tuple[str, T], ...]:
    found: dict[str, T] = {}
    for item in items:
        table, _, text = item.rpartition(":")
        value = parse(text)
        assert value is not None
        found |= dict.fromkeys([table] if table else tables, value)
    return tuple(found.items())


def check_keyspace(keyspace: str) -> None:
    """Refuse what is no name of a keyspace."""
    if _KEYSPACE.fullmatch(keyspace) is None:
        raise ConfigError(
            f"{keyspace!r} is no keyspace of Cassandra: a letter, then letters, digits and _, 48 at most"
        )
