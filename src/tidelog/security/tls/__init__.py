"""TLS: keys and certificates in every form that Kafka's options take, and the contexts made of them.

der, certificate      what is read of a certificate: subject, names, validity
jks                   Java's own key stores
stores                key and trust stores: PEM, PKCS12, JKS, in files or in options
cipher_suites         IANA's names of ciphers, and OpenSSL's
principal_mapping     ``ssl.principal.mapping.rules``
settings, context     options to ``ssl.SSLContext``, of servers and of clients
rotation              whether a new certificate may take the place of another
kernel_tls            whether the kernel encrypts

Used by the broker's listeners (``broker/network/tls_listeners``) and by clients
(``client/_network/security/tls``).
"""
