"""``tidelog users``: those who log in by SCRAM."""
