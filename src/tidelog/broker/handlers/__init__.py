"""One file per API; ``broker.dispatch`` holds the table that names them."""
