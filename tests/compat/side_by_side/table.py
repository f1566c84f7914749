"""All cases, module by module."""

from __future__ import annotations

import importlib

from tests.compat.side_by_side.cases import CASES

MODULES = (
    "produce_requests",
    "produce_batches",
    "producers",
    "fetches",
    "fetch_waits",
    "fetch_sessions",
    "offsets",
    "cleaning",
    "metadata",
    "connections",
    "admin_topics",
    "admin_records",
    "admin_configs",
    "admin_config_changes",
    "admin_cluster",
    "quota_requests",
    "quota_throttles",
    "client_telemetry",
    "group_joining",
    "group_members",
    "group_offsets",
    "group_admin",
    "consumer_groups",
    "group_types",
    "transaction_ids",
    "transaction_states",
    "transaction_records",
    "transaction_offsets",
    "transaction_markers",
    "transaction_admin",
)

for module in MODULES:
    importlib.import_module(f"tests.compat.side_by_side.{module}")

__all__ = ["CASES"]
