"""``tidelog groups``."""
