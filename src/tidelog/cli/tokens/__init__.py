"""``tidelog tokens``: passwords for a time, by which somebody lets programs log in as himself."""
