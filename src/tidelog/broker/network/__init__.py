"""Connections: accepting, reading frames, sending answers, and the bounds of all that."""
