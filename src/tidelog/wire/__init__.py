"""Bytes in and out, without any I/O: frames, headers, the table of APIs, messages and their codec.

``produce`` and ``fetch`` are written by hand for the hot path; every other message goes through ``codec``.
"""
