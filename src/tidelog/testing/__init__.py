"""Tests with a real broker: ``with broker() as b:``, ``async with async_broker() as b:``, pytest's fixtures.

Public: what is named here, and the fixtures of ``testing.pytest_plugin``. ``broker_process`` and
``broker_thread`` are the two ways to run such a broker.
"""

from __future__ import annotations

# The function, and not the module of the same name, is what ``from tidelog.testing import broker`` means.
from tidelog.testing.broker import LocalBroker, async_broker, broker

__all__ = ["LocalBroker", "async_broker", "broker"]
