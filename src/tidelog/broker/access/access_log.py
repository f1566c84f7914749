"""The log of decisions about access, and the audit log.

``kafka.authorizer.logger``, as Kafka names it: denials at INFO, what is allowed at DEBUG, each with the rule
that decided. Of one principal no more than ten denials a second are written; how many were left out is said.

The audit log is for whoever has to account for access, as JSON lines in a file (``tidelog.audit.log.file``,
see ``audit_file``), as records of a topic (``tidelog.audit.log.topic``, see ``audit_topic``), or both: every
denial, everything that is allowed when it is decided (and not again for each request that the same connection
makes until a rule changes), and every change of a rule. That somebody may write to the topic of the audit log
is left out of that topic: brokers would write about their writing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from tidelog.broker.network.rate_limited_log import RateLimitedLog
from tidelog.clock import Clock
from tidelog.security.acls.authorizer import Decision
from tidelog.security.acls.model import AclBinding, Operation, ResourceType
from tidelog.security.session import Session

if TYPE_CHECKING:
    # Not loaded where there is no such file or topic.
    from tidelog.broker.access.audit_file import AuditFile
    from tidelog.broker.access.audit_topic import AuditBuffer

LOGGER_NAME = "kafka.authorizer.logger"
logger = logging.getLogger(LOGGER_NAME)

_LINE = "Principal = %s is OUTCOME operation = %s from host = %s on resource = %s based on: %s"
_MAX_PRINCIPALS = 1000


class AccessLog:
    """Where decisions of one broker are written down."""

    def __init__(
        self,
        clock: Clock,
        audit_file: AuditFile | None = None,
        audit_topic: str | None = None,
        audit_buffer: AuditBuffer | None = None,
    ) -> None:
        """``audit_buffer`` is where entries for the topic go."""
        self._clock = clock
        self._denials = RateLimitedLog(logger, clock)
        self._principals: set[str] = set()
        self._audit_file = audit_file
        self.audit_topic = audit_topic
        """The topic that the audit log is written to, if it is to one."""
        self.audit_buffer = audit_buffer

    @property
    def is_audited(self) -> bool:
        """Whether there is an audit log."""
        return self._audit_file is not None or self.audit_buffer is not None

    @property
    def wants_all(self) -> bool:
        """Whether every request that is allowed is to be logged, so that no decision may be kept."""
        return logger.isEnabledFor(logging.DEBUG)

    def decided(
        self, session: Session, operation: Operation, kind: ResourceType, name: str, decision: Decision
    ) -> None:
        """Somebody has asked for something."""
        if self.is_audited:
            entry: dict[str, object] = {
                "operation": operation.name,
                "resourceType": kind.name,
                "resourceName": name,
                "allowed": decision.allowed,
                "rule": str(decision.reason),
            }
            writes_here = operation is Operation.WRITE and kind is ResourceType.TOPIC
            is_own = decision.allowed and writes_here and name == self.audit_topic
            self._write(session, entry, to_topic=not is_own)
        resource = f"{kind.label}:LITERAL:{name}"
        details = (session.principal, operation.name, session.host, resource, decision.reason)
        if decision.allowed:
            logger.debug(_LINE.replace("OUTCOME", "Allowed"), *details)
        else:
            line = _LINE.replace("OUTCOME", "Denied")
            self._denials.warn(self._kind(session), line, *details, level=logging.INFO)

    def changed(self, session: Session, change: str, binding: AclBinding) -> None:
        """Somebody has added or removed a rule."""
        logger.info("%s from %s has %s the rule: %s", session.principal, session.host, change, binding)
        if self.is_audited:
            self._write(session, {"change": change, "rule": str(binding)})

    def close(self) -> None:
        """Close the audit log."""
        if self._audit_file is not None:
            self._audit_file.close()

    def _kind(self, session: Session) -> str:
        # Lines are limited by principal, so that a flood by one hides nothing of the others.
        principal = str(session.principal)
        if principal not in self._principals and len(self._principals) >= _MAX_PRINCIPALS:
            self._principals.clear()
            self._denials = RateLimitedLog(logger, self._clock)
        self._principals.add(principal)
        return principal

    def _write(self, session: Session, entry: dict[str, object], *, to_topic: bool = True) -> None:
        who = {
            "timestampMs": self._clock.time_ms(),
            "principal": str(session.principal),
            "host": session.host,
        }
        line = msgspec.json.encode(who | entry)
        if self._audit_file is not None:
            self._audit_file.write(line)
        if self.audit_buffer is not None and to_topic:
            self.audit_buffer.write(line)
