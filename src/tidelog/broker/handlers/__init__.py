"""One file per API; ``broker/served`` lists them, and ``broker/exchange/dispatch`` calls them."""
