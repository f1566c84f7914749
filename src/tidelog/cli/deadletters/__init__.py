"""``tidelog deadletters``."""
