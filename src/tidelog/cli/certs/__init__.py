"""``tidelog certs``: certificates to develop and test with."""
