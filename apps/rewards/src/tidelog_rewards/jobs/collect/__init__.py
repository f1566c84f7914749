"""collect: all event logs into tables (Cassandra, or the lake alone) and a lake by day."""
