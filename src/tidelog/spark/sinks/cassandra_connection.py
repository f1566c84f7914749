"""The connection to Cassandra of one process; for the driver and for Spark's Python workers alike.

Spark keeps its workers from batch to batch, so a connection and its prepared statements are made once per
worker. Every failure becomes a :class:`CassandraError` of one sentence that names the option to mend.
"""

from __future__ import annotations

import re
import socket
import ssl
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog.errors import TidelogError
from tidelog.spark.cassandra_options import PASSWORD_VARIABLE, CassandraOptions, ContactPoints

if TYPE_CHECKING:
    from cassandra.cluster import Cluster, Session
    from cassandra.query import PreparedStatement

    from tidelog.spark.settings import PipelineSettings

CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 10.0
ATTEMPTS = 8
FIRST_PAUSE_S = 0.2
"""Doubled with each attempt: half a minute in all, in which a node may be started again."""
SCHEMA_ATTEMPTS = 5
"""A node that was away learns of a new table or column some seconds after the others."""

_UNTRUSTED = re.compile(r"certificate verify failed: (.+?)\.? \(_ssl")
"""The driver of Cassandra passes on what OpenSSL says, not its exceptions."""


class CassandraError(TidelogError):
    """Cassandra cannot be reached, or refuses; the text names the contact points and the mend."""


@dataclass(frozen=True, slots=True)
class CassandraCluster:
    """A cluster and how to talk to it: what a process's connection is known by. Goes to tasks."""

    points: ContactPoints
    options: CassandraOptions = field(default_factory=CassandraOptions)

    @staticmethod
    def at(contact_points: str, options: CassandraOptions | None = None) -> CassandraCluster:
        """The cluster that some of its nodes are named of."""
        return CassandraCluster(ContactPoints.parse(contact_points), options or CassandraOptions())


def cluster_of(settings: PipelineSettings) -> CassandraCluster:
    """The cluster of settings that name one."""
    assert settings.cassandra is not None
    return CassandraCluster.at(settings.cassandra, settings.cassandra_options)


class Connection:
    """A session and the statements prepared in it; usable from every thread."""

    def __init__(self, session: Session, options: CassandraOptions) -> None:
        self.session = session
        self._options = options
        self._statements: dict[tuple[str, str], PreparedStatement] = {}

    def writing(self, text: str) -> PreparedStatement:
        """A statement that writes, and may be sent any number of times; prepared once."""
        return self._prepared(text, self._options.write_consistency)

    def reading(self, text: str) -> PreparedStatement:
        """A statement that reads; prepared once."""
        return self._prepared(text, self._options.read_consistency)

    def _prepared(self, text: str, consistency: str) -> PreparedStatement:
        from cassandra import ConsistencyLevel

        if (text, consistency) not in self._statements:
            statement = self._prepare(text)
            statement.is_idempotent = True
            statement.consistency_level = ConsistencyLevel.name_to_value[consistency]
            self._statements[text, consistency] = statement
        return self._statements[text, consistency]

    def _prepare(self, text: str) -> PreparedStatement:
        from cassandra import InvalidRequest, Unauthorized

        pause_s = FIRST_PAUSE_S
        attempt = 0
        while True:
            attempt += 1
            try:
                return self.session.prepare(text)
            except Unauthorized as failure:
                raise CassandraError(f"Cassandra refuses {self._who}: {first_error(failure)}") from failure
            except Exception as failure:
                of_schema = isinstance(failure, InvalidRequest)
                if attempt == (SCHEMA_ATTEMPTS if of_schema else ATTEMPTS) or not (
                    of_schema or worth_repeating(failure)
                ):
                    raise CassandraError(
                        f"Cassandra does not understand a statement of ours: {first_error(failure)}"
                        if of_schema
                        else f"Cassandra failed {attempt} times to prepare a statement: "
                        f"{first_error(failure)}"
                    ) from failure
            time.sleep(pause_s)
            pause_s *= 2

    @property
    def _who(self) -> str:
        return f"user {self._options.user}" if self._options.user is not None else "us"


_connections: dict[CassandraCluster, Connection] = {}
_connecting = threading.Lock()


def connect(cluster: CassandraCluster) -> Connection:
    """This process's connection to a cluster, made once."""
    with _connecting:
        if cluster not in _connections:
            _connections[cluster] = Connection(_open(cluster), cluster.options)
        return _connections[cluster]


def disconnect(cluster: CassandraCluster) -> None:
    """Close this process's connection, if it has one."""
    with _connecting:
        connection = _connections.pop(cluster, None)
    if connection is not None:
        connection.session.cluster.shutdown()


def _open(cluster: CassandraCluster) -> Session:
    try:
        from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
        from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy
        from cassandra.query import tuple_factory
    except ImportError as failure:
        raise CassandraError(
            'the driver of Cassandra is not installed: `pip install "tidelog[cassandra]"` brings it'
        ) from failure
    from cassandra.auth import PlainTextAuthProvider

    from cassandra import ConsistencyLevel

    points, options = cluster.points, cluster.options
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(options.local_datacenter or "")),
        consistency_level=ConsistencyLevel.name_to_value[options.read_consistency],
        request_timeout=REQUEST_TIMEOUT_S,
        row_factory=tuple_factory,
    )
    login = options.user is not None
    made = Cluster(
        contact_points=list(points.addresses),
        port=points.addresses[0][1],
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        auth_provider=PlainTextAuthProvider(options.user, options.password) if login else None,
        ssl_context=tls_context(options) if options.tls else None,
        connect_timeout=CONNECT_TIMEOUT_S,
        control_connection_timeout=CONNECT_TIMEOUT_S,
    )
    try:
        session = made.connect()
        _check_datacenter(made, options)
    except (NoHostAvailable, OSError) as failure:
        try:
            _check_datacenter(made, options)
        finally:
            made.shutdown()
        raise _unreachable(cluster, failure) from failure
    except CassandraError:
        made.shutdown()
        raise
    return session


def tls_context(options: CassandraOptions) -> ssl.SSLContext:
    """What TLS is spoken by; raises one sentence about a file that is not there or not what it should be."""
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
    except (OSError, ssl.SSLError) as failure:
        raise _unusable("tls.ca.file", options.ca_file, "PEM certificates", failure) from failure
    context.check_hostname = options.check_hostname
    if options.certificate_file is not None:
        try:
            # Without a password OpenSSL would ask the terminal for one.
            context.load_cert_chain(options.certificate_file, options.key_file, password="")
        except (OSError, ssl.SSLError) as failure:
            files = f"{options.certificate_file} with tls.key.file {options.key_file}"
            wanted = "a PEM certificate and its key, without a password"
            raise _unusable("tls.certificate.file", files, wanted, failure) from failure
    return context


def _unusable(name: str, path: str | None, wanted: str, failure: OSError) -> CassandraError:
    return CassandraError(
        f"{name} {path} cannot be used on {socket.gethostname()} ({failure.strerror or failure}): every "
        f"machine that runs tasks must have {wanted} there"
    )


def _check_datacenter(cluster: Cluster, options: CassandraOptions) -> None:
    """Refuse a data centre that is not there, and to guess where there are several."""
    known = sorted({host.datacenter for host in cluster.metadata.all_hosts() if host.datacenter})
    wanted = options.local_datacenter
    if wanted is not None and known and wanted not in known:
        raise CassandraError(
            f"there is no data centre {wanted} of Cassandra: set local.datacenter to {' or '.join(known)}"
        )
    if wanted is None and len(known) > 1:
        # Tasks would guess for themselves, and one's LOCAL_QUORUM would not be another's.
        raise CassandraError(
            f"Cassandra has {len(known)} data centres: set local.datacenter to {' or '.join(known)}"
        )


def _unreachable(cluster: CassandraCluster, failure: Exception) -> CassandraError:
    """The sentence for a cluster that nobody could connect to."""
    from cassandra import AuthenticationFailed

    points, options = cluster.points, cluster.options
    causes = _causes(failure)
    if any(isinstance(cause, AuthenticationFailed) for cause in causes):
        if options.user is None:
            return CassandraError(
                f"Cassandra at {points} wants a login: set user, and password.file or {PASSWORD_VARIABLE}"
            )
        return CassandraError(
            f"Cassandra at {points} refuses the login of user {options.user}: correct user, or the password "
            f"in password.file or {PASSWORD_VARIABLE}"
        )
    told = " ".join(map(str, causes))
    if untrusted := _UNTRUSTED.search(told):
        return CassandraError(
            f"the certificate of Cassandra at {points} is not accepted ({untrusted[1]}): correct "
            "tls.ca.file, or have the nodes' certificates name their addresses"
        )
    if any(isinstance(cause, ssl.SSLError) for cause in causes) or "[SSL" in told:
        return CassandraError(
            f"TLS with Cassandra at {points} fails ({first_error(failure)}): correct tls.enabled, or "
            "tls.certificate.file where nodes want one"
        )
    return CassandraError(
        f"Cassandra does not answer at {points}: start it, or correct the contact points or tls.enabled, or "
        f"leave them out to keep tables in SQLite and Parquet ({first_error(failure)})"
    )


def _causes(failure: BaseException) -> list[BaseException]:
    errors = getattr(failure, "errors", None)
    found = list(errors.values()) if isinstance(errors, dict) else []
    return [failure, *found, *(cause.__cause__ for cause in found if cause.__cause__ is not None)]


def worth_repeating(failure: Exception) -> bool:
    """Whether a request failed for want of replicas or time, so that it may succeed a little later."""
    from cassandra.cluster import NoHostAvailable
    from cassandra.connection import ConnectionException
    from cassandra.protocol import IsBootstrappingErrorMessage, OverloadedErrorMessage

    from cassandra import OperationTimedOut, ReadFailure, Timeout, Unavailable, WriteFailure

    return isinstance(
        failure,
        (
            *(OperationTimedOut, ReadFailure, Timeout, Unavailable, WriteFailure),
            *(NoHostAvailable, ConnectionException, OverloadedErrorMessage, IsBootstrappingErrorMessage),
        ),
    )


def first_error(failure: Exception) -> str:
    """What the first node that was asked has said."""
    errors = getattr(failure, "errors", None)
    if isinstance(errors, dict) and errors:
        return str(next(iter(errors.values())))
    return str(failure)
