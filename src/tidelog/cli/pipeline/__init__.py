"""``tidelog pipeline``."""
