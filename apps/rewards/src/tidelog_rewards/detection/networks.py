"""Addresses as the rules compare them; plain Python, called for each event."""

from __future__ import annotations


def network(ip: str) -> str:
    """The /24 of an IPv4 address, the /48 of an IPv6 one."""
    border = ":" if ":" in ip else "."
    return border.join(ip.split(border)[:3])
