# SPDX-License-Identifier: Apache-2.0
"""Addresses: HOST:PORT, with IPv6 hosts in brackets."""
from __future__ import annotations

import ipaddress

from .status import SetupError


def host_and_port(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535 or not host:
        raise SetupError(f"not HOST:PORT: {address}")
    return host.strip("[]"), int(port)


def text_of(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """True for addresses that other machines cannot reach. Names but localhost are not looked up."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
