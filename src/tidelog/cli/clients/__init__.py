"""``tidelog clients``: who is connected to brokers, and what they ask for."""
