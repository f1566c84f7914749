"""The states of a broker's life, with Kafka's numbers, and which of them may follow which.

Owned by ``broker/app``; shown in the log and by ``Broker.state``.
"""

from __future__ import annotations

import enum
import logging

from tidelog.errors import TidelogError

logger = logging.getLogger(__name__)


class BrokerState(enum.IntEnum):
    """Kafka's broker states."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERING_FROM_UNCLEAN_SHUTDOWN = 2
    RUNNING_AS_BROKER = 3
    RUNNING_AS_CONTROLLER = 4
    """A running broker that is the active controller; ``Broker.state`` derives it from the election."""
    PENDING_CONTROLLED_SHUTDOWN = 6
    BROKER_SHUTTING_DOWN = 7

    @property
    def is_running(self) -> bool:
        """Whether the broker serves clients, as the controller or not."""
        return self in (BrokerState.RUNNING_AS_BROKER, BrokerState.RUNNING_AS_CONTROLLER)


_NEXT = {
    BrokerState.NOT_RUNNING: {BrokerState.STARTING},
    BrokerState.STARTING: {
        BrokerState.RECOVERING_FROM_UNCLEAN_SHUTDOWN,
        BrokerState.RUNNING_AS_BROKER,
        BrokerState.BROKER_SHUTTING_DOWN,
    },
    BrokerState.RECOVERING_FROM_UNCLEAN_SHUTDOWN: {
        BrokerState.RUNNING_AS_BROKER,
        BrokerState.BROKER_SHUTTING_DOWN,
    },
    BrokerState.RUNNING_AS_BROKER: {
        BrokerState.PENDING_CONTROLLED_SHUTDOWN,
        BrokerState.BROKER_SHUTTING_DOWN,
    },
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: {BrokerState.BROKER_SHUTTING_DOWN},
    BrokerState.BROKER_SHUTTING_DOWN: {BrokerState.NOT_RUNNING},
}


class LifeCycle:
    """The current state; refuses a step that the order of the states does not allow.

    A running broker becomes controller and ceases to be it without a step here.
    """

    def __init__(self) -> None:
        self.state = BrokerState.NOT_RUNNING

    def enter(self, state: BrokerState) -> None:
        """Go to ``state``."""
        if state not in _NEXT[self.state]:
            raise RuntimeError(f"a broker in state {self.state.name} cannot become {state.name}")
        logger.debug("Broker state %s -> %s", self.state.name, state.name)
        self.state = state


class StartGivenUp(TidelogError):
    """The broker was told to stop before it had started."""
