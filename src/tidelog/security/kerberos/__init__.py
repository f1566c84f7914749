"""Kerberos: what brokers and clients that log in by GSSAPI have in common.

auth_to_local   rules that make a user's name of a Kerberos principal
linear_regex    the regular expressions in them, matched in bounded time
login           who one is to Kerberos, as a JAAS line says it: a keytab, or a cache of tickets
context         what a login needs of the library        library   the package `gssapi`, which is an extra

Nothing is loaded before a listener or a client asks for GSSAPI; of all of this ``library`` alone needs the
extra.
"""
