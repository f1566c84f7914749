"""``tidelog log``."""
