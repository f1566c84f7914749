"""Produce requests: validation, transactions, and the wait for replicas."""
