"""Finds abuse in events: rules, state in tasks, alerts, incidents and verdicts."""
