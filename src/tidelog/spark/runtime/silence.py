"""Brokers that do not answer: how long a job waits before it says so (``brokerTimeoutMs``).

A leader that is away, a coordinator that moves and a broker that restarts are waited for as long as Kafka's
own options say, minutes by default. That is of no use where no broker answers at all: then the address is
wrong, the cluster is down, or a firewall is in between, and somebody should know soon. Every part of the data
source asks any broker first, or when its own partner is silent, and gives up here. Used on the driver and on
executors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from tidelog.client._network.retry import Deadline
from tidelog.client.errors import BrokerUnreachableError, ConnectionLostError, RequestTimeoutError
from tidelog.errors import TidelogError

if TYPE_CHECKING:
    from tidelog.client._network.cluster import Cluster

SILENT = (BrokerUnreachableError, ConnectionLostError, RequestTimeoutError)
"""How a broker that does not answer shows."""


class NoBrokerError(TidelogError):
    """No broker has answered for ``brokerTimeoutMs``; asking again is left to a person."""


def no_broker(client: Mapping[str, str], timeout_ms: int, cause: BaseException) -> NoBrokerError:
    """The sentence for a client with these options."""
    return NoBrokerError(
        f"no broker has answered for {timeout_ms / 1000:g} s ({cause}): start the brokers, mend "
        f"kafka.bootstrap.servers={client.get('bootstrap.servers')}, or raise brokerTimeoutMs"
    )


async def reach(
    cluster: Cluster, topics: Collection[str], client: Mapping[str, str], timeout_ms: int
) -> None:
    """Ask any broker for metadata of ``topics``; raises ``NoBrokerError`` where none answers."""
    try:
        await cluster.refresh(topics, deadline=Deadline(timeout_ms))
    except SILENT as error:
        raise no_broker(client, timeout_ms, error) from error
