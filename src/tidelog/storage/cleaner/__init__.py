"""Compaction: what to clean, how a pass goes, and the process that does it."""
