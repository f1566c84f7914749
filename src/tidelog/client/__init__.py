"""The client side: connections, cluster metadata, admin calls, producing and consuming."""
