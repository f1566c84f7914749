"""One module per API, generated; import the one you need, they are never imported all at once."""
