"""The interface of an authorizer of your own, which the broker option ``authorizer.class.name`` names.

    class OfficeHours(CustomAuthorizer):
        def authorize(self, action: Action) -> bool:
            return action.operation is not Operation.WRITE or 8 <= datetime.now().hour < 18

``authorizer.class.name=package.module:OfficeHours`` loads it when the broker starts. It replaces access rules
(ACLs), which such a broker does not keep; principals in ``super.users`` are allowed everything without a
question. ``broker/access/custom_authorization`` calls it, and denies whatever it cannot answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.security.acls.model import Operation, ResourceType
from tidelog.security.principal import Principal


class Action(NamedTuple):
    """What a client asks to do."""

    principal: Principal
    """Who asks: ``principal.type`` is ``User``, ``principal.name`` the name by which the client logged in."""
    host: str
    """The IP address that the client connects from."""
    operation: Operation
    resource_type: ResourceType
    resource_name: str
    """The topic, group or transactional id; ``kafka-cluster`` for the cluster."""


class CustomAuthorizer(ABC):
    """Decides what clients may do; derive from it and define ``authorize``.

    Methods are called in a thread of their own, one call at a time. An answer has to come from memory: the
    broker waits for it. An error, an answer that is not a bool and one that takes longer than a second deny
    the action. A positive answer is kept for each connection for up to five seconds.
    """

    def configure(self, options: Mapping[str, str]) -> None:  # noqa: B027  # optional
        """Take over the broker's options, with unknown ones and without passwords.

        Called once, before ``authorize``. An exception keeps the broker from starting.
        """

    @abstractmethod
    def authorize(self, action: Action) -> bool:
        """Whether the action is allowed."""

    def authorize_any(self, action: Action) -> bool:
        """Whether the operation is allowed on some resource of the type; ``resource_name`` is empty.

        An idempotent producer is admitted by WRITE on any topic, or by IDEMPOTENT_WRITE on the cluster, for
        which ``authorize`` is called first.
        """
        return False

    def close(self) -> None:  # noqa: B027  # optional
        """Give resources back; the broker stops."""
