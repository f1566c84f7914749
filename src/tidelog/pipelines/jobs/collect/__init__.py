"""collect: all event logs into tables (Cassandra, or the lake alone) and a Parquet lake by date."""
