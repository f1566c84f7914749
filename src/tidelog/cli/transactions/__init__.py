"""``tidelog transactions``."""
