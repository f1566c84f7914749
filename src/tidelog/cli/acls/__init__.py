"""``tidelog acls``."""
