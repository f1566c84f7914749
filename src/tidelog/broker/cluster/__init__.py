"""A broker among others: its session, its connections to them, and what the controller tells it."""
