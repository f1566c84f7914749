"""Runs an authorizer of the user's own (``tidelog.security.acls.custom_authorizer``) and never trusts it.

It is called in a thread, one question at a time. An exception, an answer that is not a bool and one that
takes longer than ``_PATIENCE_S`` deny the action. After such a wait everything is denied without a question
for ``_PAUSE_S``, and until the thread is free again, so that an authorizer that hangs costs the loop one
wait in that time. Each kind of failure is logged once. Called by ``authorization`` through the same two
methods as the authorizer by rules.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from tidelog.broker.access.authorization import Authorization
from tidelog.custom_class import configure_custom, make_custom
from tidelog.security.acls.authorizer import SUPER_USER, Decision, Question
from tidelog.security.acls.custom_authorizer import Action, CustomAuthorizer
from tidelog.security.acls.model import ResourceType
from tidelog.security.principal import Principal

if TYPE_CHECKING:
    from tidelog.broker.access.access_log import AccessLog

logger = logging.getLogger(__name__)

_OPTION = "authorizer.class.name"
_KEPT_S = 5.0
_PATIENCE_S = 1.0
_PAUSE_S = 10.0
_END_S = 5.0
_MOST_FAILURES = 100

_ALLOWED: Final = "the custom authorizer allows it"
_DENIED: Final = "the custom authorizer denies it"
_FAILED: Final = "the custom authorizer failed"
_BUSY: Final = "the custom authorizer does not answer"


def custom_authorization(
    name: str, options: Mapping[str, str], super_users: Iterable[Principal], log: AccessLog
) -> Authorization:
    """The access control that ``authorizer.class.name`` asks for; raises ``ConfigError``."""
    authorizer = make_custom(_OPTION, name, CustomAuthorizer)
    configure_custom(_OPTION, name, authorizer, options)
    decisions = CustomDecisions(name, authorizer, super_users)
    authorization = Authorization(decisions, None, log)
    forgetting = asyncio.get_running_loop().create_task(_forget_regularly(authorization))

    async def close() -> None:
        forgetting.cancel()
        await asyncio.gather(forgetting, return_exceptions=True)
        await decisions.close()

    authorization.on_close.append(close)
    return authorization


async def _forget_regularly(authorization: Authorization) -> None:
    """Let no decision be older than ``_KEPT_S``: the authorizer may have changed its mind."""
    while True:
        await asyncio.sleep(_KEPT_S)
        authorization.forget_decisions()


class _Question:
    """A call that waits for its result."""

    __slots__ = ("answer", "answered", "ask", "error")

    def __init__(self, ask: Callable[[], object]) -> None:
        self.ask = ask
        self.answered = threading.Event()
        self.answer: object = None
        self.error: BaseException | None = None


class CustomDecisions:
    """What ``authorization`` asks in place of the authorizer by rules."""

    def __init__(self, name: str, authorizer: CustomAuthorizer, super_users: Iterable[Principal]) -> None:
        self.name = name
        self._authorizer = authorizer
        self._super_users = frozenset(super_users)
        self._questions: SimpleQueue[_Question | None] = SimpleQueue()
        self._unanswered: _Question | None = None
        self._silent_until_s = 0.0
        self._logged: set[str] = set()
        # A daemon: one that hangs must not keep the broker's process from ending.
        self._thread = threading.Thread(target=self._run, name="tidelog-authorizer", daemon=True)
        self._thread.start()

    def decide(self, question: Question, kind: ResourceType, name: str) -> Decision:
        """Whether it may be done to the resource of this name."""
        return self._decide(self._authorizer.authorize, question, kind, name)

    def decide_any(self, question: Question, kind: ResourceType) -> Decision:
        """Whether it may be done to some resource of the type."""
        return self._decide(self._authorizer.authorize_any, question, kind, "")

    async def close(self) -> None:
        """Have the authorizer closed, and wait for that a moment."""
        self._questions.put(_Question(self._authorizer.close))
        self._questions.put(None)
        await asyncio.to_thread(self._thread.join, _END_S)

    def _decide(
        self, ask: Callable[[Action], object], question: Question, kind: ResourceType, name: str
    ) -> Decision:
        if question.principal in self._super_users:
            return Decision(True, SUPER_USER)
        if self._is_silent():
            return Decision(False, _BUSY)
        action = Action(question.principal, question.host, question.operation, kind, name)
        asked = _Question(partial(ask, action))
        self._questions.put(asked)
        if not asked.answered.wait(_PATIENCE_S):
            self._unanswered = asked
            self._silent_until_s = time.monotonic() + _PAUSE_S
            self._log_once(f"takes longer than {_PATIENCE_S:g} s", action, None)
            return Decision(False, _BUSY)
        if asked.error is not None:
            self._log_once(f"raised {type(asked.error).__name__}", action, asked.error)
            return Decision(False, _FAILED)
        if not isinstance(asked.answer, bool):
            self._log_once(f"returned a {type(asked.answer).__name__}, not a bool", action, None)
            return Decision(False, _FAILED)
        return Decision(asked.answer, _ALLOWED if asked.answer else _DENIED)

    def _is_silent(self) -> bool:
        """Whether an earlier question was not answered in time, and asking again would cost another wait."""
        if self._unanswered is None:
            return False
        if time.monotonic() < self._silent_until_s or not self._unanswered.answered.is_set():
            return True
        self._unanswered = None
        return False

    def _log_once(self, what: str, action: Action, error: BaseException | None) -> None:
        if what in self._logged or len(self._logged) >= _MOST_FAILURES:
            return
        self._logged.add(what)
        logger.error(
            "The authorizer %s %s, which denies %s to %s on %s %r; this is logged once",
            self.name,
            what,
            action.operation.name,
            action.principal,
            action.resource_type.name,
            action.resource_name,
            exc_info=error,
        )

    def _run(self) -> None:
        while (question := self._questions.get()) is not None:
            try:
                question.answer = question.ask()
            except BaseException as error:
                # SystemExit, too: it would end the thread, and with it every answer.
                question.error = error
            question.answered.set()
