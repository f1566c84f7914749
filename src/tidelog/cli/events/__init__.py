"""``tidelog events``."""
