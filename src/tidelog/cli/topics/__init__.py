"""``tidelog topics``."""
