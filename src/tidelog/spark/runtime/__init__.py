"""Processes and files around Spark: Python workers, Java, logins, private directories."""
