"""Access control of one broker: handlers ask here whether a client may do what it asks for.

Without an authorizer everything is allowed, at the cost of a look at ``None``. With one a decision is kept
with the client's session, so that the next is a look-up in a dictionary, until a rule changes; produce and
fetch look there themselves (:data:`WRITE_TOPIC`, :data:`READ_TOPIC`). Every denial is decided anew and logged
(``access_log``), except where a client did not ask for the resource itself, as for topics that are left out
of a list (``quiet``).

``required_access`` says what each API needs. What concerns a whole request is checked by
``broker/exchange/dispatch`` before its handler is called; what concerns one topic, group or id of many, by
the handler.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import Uuid
from tidelog.security.acls.model import CLUSTER_NAME, Operation, ResourceType
from tidelog.security.acls.supported import SUPPORTED_OPERATIONS, bit_field
from tidelog.security.session import Session

if TYPE_CHECKING:
    # A broker without an authorizer loads none of these.
    from tidelog.broker.access.access_log import AccessLog
    from tidelog.metadata.acl_store import AclStore
    from tidelog.security.acls.authorizer import Decision, Question

# So many decisions are kept for one client; whoever asks for more names has them made anew.
_MAX_KEPT = 20_000

# What changes a topic, or what is in it.
_CHANGES: Final = frozenset({Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS})

_REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


def _decision_code(operation: Operation, kind: ResourceType) -> int:
    """Half of the key of a decision, besides the resource's name: a plain number, which is found fastest."""
    return int(operation) << 4 | int(kind)


WRITE_TOPIC: Final = _decision_code(Operation.WRITE, ResourceType.TOPIC)
"""``session.decisions[WRITE_TOPIC, name]``: whether the client may write to a topic, if that was asked.
A topic that it may write to stands there by its id as well, once it has called it so."""
READ_TOPIC: Final = _decision_code(Operation.READ, ResourceType.TOPIC)


class Decider(Protocol):
    """The authorizer by rules, or one of the user's own (``custom_authorization``)."""

    def decide(self, question: Question, kind: ResourceType, name: str) -> Decision:
        """Whether it may be done to the resource of this name."""

    def decide_any(self, question: Question, kind: ResourceType) -> Decision:
        """Whether it may be done to some resource of the type."""


class Authorization:
    """What clients of one broker may do."""

    def __init__(
        self,
        authorizer: Decider | None = None,
        acls: AclStore | None = None,
        log: AccessLog | None = None,
    ) -> None:
        self.authorizer = authorizer
        self.acls = acls
        """Where access rules are kept; ``None`` without an authorizer, and with one of the user's own."""
        self.log = log
        self.on_close: list[Callable[[], Awaitable[None]]] = []
        self.sessions: Callable[[], Iterable[Session]] = tuple
        """All clients that are connected."""
        if acls is not None:
            acls.on_change = self.forget_decisions

    @property
    def is_on(self) -> bool:
        """Whether there is an authorizer."""
        return self.authorizer is not None

    def allows(
        self,
        session: Session,
        operation: Operation,
        kind: ResourceType,
        name: str = CLUSTER_NAME,
        *,
        quiet: bool = False,
        instead: bool = False,
    ) -> bool:
        """Whether a client may do something; ``quiet`` where it has not asked for exactly that.

        ``instead`` where another right does as well: to lack this one is not worth a line, to use it is.
        """
        if self.authorizer is None:
            return True
        kept = session.decisions.get((_decision_code(operation, kind), name))
        if kept or ((quiet or instead) and kept is not None):
            return kept
        return self._decide(session, operation, kind, name, quiet=quiet, instead=instead)

    def require(
        self, session: Session, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME
    ) -> None:
        """Raise the refusal unless a client may do something."""
        if not self.allows(session, operation, kind, name):
            raise refusal(session, operation, kind, name)

    def allows_topic(self, session: Session, operation: Operation, name: str, *, quiet: bool = False) -> bool:
        """:meth:`allows` for a topic."""
        return self.authorizer is None or self.allows(
            session, operation, ResourceType.TOPIC, name, quiet=quiet
        )

    def allows_writing_to(self, session: Session, name: str, topic_id: Uuid) -> bool:
        """:meth:`allows_topic` for who calls a topic by its id, by which it is then kept, too."""
        allowed = self.allows_topic(session, Operation.WRITE, name)
        if allowed and session.decisions.get((WRITE_TOPIC, name)):
            _keep(session, (WRITE_TOPIC, topic_id), allowed=True)
        return allowed

    def allows_any(self, session: Session, operation: Operation, kind: ResourceType) -> bool:
        """Whether a client may do something to any resource of a type at all."""
        if self.authorizer is None:
            return True
        from tidelog.security.acls.authorizer import Question

        question = Question(session.principal, session.host, operation)
        decision = self.authorizer.decide_any(question, kind)
        self._note(session, operation, kind, "any", decision)
        return decision.allowed

    def operations(self, session: Session, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """What a client may do to a resource, as a bit field."""
        return bit_field(
            operation
            for operation in SUPPORTED_OPERATIONS[kind]
            if self.allows(session, operation, kind, name, quiet=True)
        )

    def is_audit_topic(self, name: str) -> bool:
        """Whether a topic is the audit log, which rules about the cluster do not let anybody change."""
        return self.log is not None and name == self.log.audit_topic

    async def close(self) -> None:
        """Stop following the rules."""
        for close in self.on_close:
            await close()
        if self.acls is not None:
            await self.acls.close()
        if self.log is not None:
            self.log.close()

    def _decide(
        self,
        session: Session,
        operation: Operation,
        kind: ResourceType,
        name: str,
        *,
        quiet: bool,
        instead: bool,
    ) -> bool:
        from tidelog.security.acls.authorizer import Question

        assert self.authorizer is not None
        question = Question(session.principal, session.host, operation)
        decision = self.authorizer.decide(question, kind, name)
        if (
            decision.allowed
            and operation in _CHANGES
            and kind is ResourceType.TOPIC
            and self.is_audit_topic(name)
        ):
            decision = self._as_a_broker(question, decision)
        if not quiet and (decision.allowed or not instead):
            self._note(session, operation, kind, name, decision)
        if self._may_keep(quiet=quiet):
            _keep(session, (_decision_code(operation, kind), name), allowed=decision.allowed)
        return decision.allowed

    def _as_a_broker(self, question: Question, decision: Decision) -> Decision:
        """What is decided of a change of the audit log itself: rules about topics are not enough."""
        assert self.authorizer is not None
        asked = question._replace(operation=Operation.CLUSTER_ACTION)
        if self.authorizer.decide(asked, ResourceType.CLUSTER, CLUSTER_NAME).allowed:
            return decision
        return decision._replace(
            allowed=False, reason="it is the audit log, which takes CLUSTER_ACTION to change"
        )

    def _may_keep(self, *, quiet: bool) -> bool:
        """Whether a decision may be kept: not where every use of it is to be logged, or the first one."""
        log = self.log
        return log is None or not (log.wants_all or (quiet and log.is_audited))

    def _note(
        self, session: Session, operation: Operation, kind: ResourceType, name: str, decision: Decision
    ) -> None:
        if self.log is not None:
            self.log.decided(session, operation, kind, name, decision)

    def forget_decisions(self) -> None:
        """Decide everything anew from now on: what decisions follow from has changed."""
        for session in self.sessions():
            session.decisions.clear()


def _keep(session: Session, question: object, *, allowed: bool) -> None:
    if len(session.decisions) >= _MAX_KEPT:
        session.decisions.clear()
    session.decisions[question] = allowed


OPEN: Final = Authorization()
"""No authorizer: everybody may do everything."""


def refusal(session: Session, operation: Operation, kind: ResourceType, name: str) -> KafkaError:
    """What a client is told that may not do something."""
    what = kind.name.lower().replace("_", " ")
    return KafkaError(
        _REFUSALS[kind],
        f"{session.principal} from {session.host} is not allowed to {operation.name} {what} {name!r}.",
    )
