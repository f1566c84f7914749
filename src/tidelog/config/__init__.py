"""Options of brokers, topics and listeners, and the rules that hold between them."""
