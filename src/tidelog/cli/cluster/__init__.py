"""``tidelog cluster``."""
