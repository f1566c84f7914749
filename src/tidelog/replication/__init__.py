"""Partitions as clients see them: the leader's append, the high watermark, waiting for data."""
