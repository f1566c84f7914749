"""Seeded traffic of the app for every topic of ``pipelines.events``, with fraud planted and its truth known.

    regions      countries: local time, telephone numbers, addresses
    population   households, users, devices, offices
    outbox       events as bytes, in the order in which they reach the log; redelivery, lateness, damage
    chains       what people do: impressions, logins, signups, invitations, tasks
    planted      what fraudsters do, and honest people who look like them
    truth        what was planted, and what was sent in all
    traffic      the clock that runs it all: ``Traffic(settings).until(time_ms)``
    delivery     to a broker, to files, to stdout; paced or as fast as it goes

The same settings give the same bytes. Nothing here imports Spark.
"""

from __future__ import annotations

from tidelog_rewards.generator.outbox import Event
from tidelog_rewards.generator.traffic import Traffic, TrafficSettings

__all__ = ["Event", "Traffic", "TrafficSettings"]
