"""A short session with ZooKeeper, for clients that only read there.

Used by ``old_offsets`` and ``zookeeper_brokers``. Calls block.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from tidelog.errors import TidelogError
from tidelog.zookeeper_sockets import ZooKeeperSockets

# kazoo logs every attempt to connect; here the error at the end says enough.
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.addHandler(logging.NullHandler())
_kazoo_log.propagate = False


class ZooKeeperUnreachableError(TidelogError):
    """ZooKeeper does not answer; the text names the remedy."""


@contextlib.contextmanager
def zookeeper_session(connect: str, timeout_s: float) -> Iterator[KazooClient]:
    """A session; ``connect`` is ``host:port,host:port/chroot``. What ZooKeeper refuses raises, too."""
    try:
        client = KazooClient(connect, timeout=timeout_s, handler=ZooKeeperSockets(connect), logger=_kazoo_log)
    except ValueError:
        raise ZooKeeperUnreachableError(
            f"{connect!r} is not a ZooKeeper address: write host:2181,host:2181/chroot"
        ) from None
    try:
        client.start(timeout_s)
        yield client
    except KazooTimeoutError:
        raise ZooKeeperUnreachableError(
            f"no ZooKeeper server answers at {connect}: start it, or correct the address"
        ) from None
    except KazooException as error:
        raise ZooKeeperUnreachableError(
            f"the session with ZooKeeper at {connect} failed ({type(error).__name__}): try again"
        ) from error
    finally:
        client.stop()
        client.close()
