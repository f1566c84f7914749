"""``tidelog partitions``."""
