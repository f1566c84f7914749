"""The part of the console that shows alerts: an endpoint, and a tool for assistants."""

from __future__ import annotations

from tidelog.console.api import messages_api
from tidelog.console.extension import ConsolePage
from tidelog.console.mcp.tools import RECORD_ARGUMENTS, Tool
from tidelog_rewards.console import alerts_api
from tidelog_rewards.events import ACCOUNT_SWITCH_ALERTS, INCIDENTS, INVITE_FRAUD_ALERTS

ALERTS = ConsolePage(
    endpoints=alerts_api.ENDPOINTS,
    tools=(
        Tool(
            "alerts",
            f"Read alerts of Tidelog's fraud pipelines: incidents, or the single alerts of the topics "
            f"{ACCOUNT_SWITCH_ALERTS} and {INVITE_FRAUD_ALERTS}.",
            messages_api.messages,
            RECORD_ARGUMENTS,
            topic=INCIDENTS,
        ),
    ),
)
"""The card of alerts is on the console's page about Spark."""
