"""``tidelog log-dirs``: what is in the log directories of brokers, and moves between them."""
