"""Clients' telemetry (KIP-714): who is asked for which figures, and what they have pushed."""
