"""``tidelog lake``."""
