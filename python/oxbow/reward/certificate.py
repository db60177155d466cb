# SPDX-License-Identifier: Apache-2.0
"""The roles that a certificate names: URIs among its alternative names, as in oxbow's src/rpc/identity.h.

    oxbow://FLEET/ROLE          oxbow://FLEET/worker/ID

Reads as much of X.509's DER as these names and the serial number need.
"""
from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from typing import Iterator

ROLES = ("learner", "worker", "buffer", "reward", "operator")
_SCHEME = "oxbow://"
_URI = re.compile(r"oxbow://([A-Za-z0-9._-]+)/(?:(learner|worker|buffer|reward|operator)|worker/[A-Za-z0-9._-]+)")
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_INTEGER, _OCTETS, _EXTENSIONS, _DNS, _URI_NAME = 0x02, 0x04, 0xA3, 0x82, 0x86
_ALTERNATIVE_NAMES = b"\x06\x03\x55\x1d\x11"  # The object identifier 2.5.29.17.


@dataclass(frozen=True)
class Holder:
    """The holder of a certificate."""

    uris: tuple[str, ...] = ()  # Those that begin with oxbow://.
    dns_names: tuple[str, ...] = ()
    serial: str = ""  # Upper-case hexadecimal digits without leading zeros.

    @property
    def name(self) -> str:
        return ",".join(self.uris) or f"certificate {self.serial}"

    @property
    def fleets(self) -> set[str]:
        return {fleet for fleet, _ in self._identities()}

    def roles_in(self, fleet: str) -> set[str]:
        return {role for of, role in self._identities() if of == fleet}

    def _identities(self) -> Iterator[tuple[str, str]]:
        for uri in self.uris:
            if found := _URI.fullmatch(uri):
                yield found.group(1), found.group(2) or "worker"


def holder_of(pem: str) -> Holder:
    """Reads the first certificate of a PEM text. ValueError if there is none, if it cannot be read, or if a
    URI begins with oxbow:// and has neither form above."""
    found = _PEM.search(pem)
    if not found:
        raise ValueError("no certificate in PEM")
    try:
        holder = _parse(ssl.PEM_cert_to_DER_cert(found.group(0)))
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"not a certificate: {error}") from None
    for uri in holder.uris:
        if not _URI.fullmatch(uri):
            raise ValueError(f"not oxbow://FLEET/ROLE or oxbow://FLEET/worker/ID: {uri}")
    return holder


def _parse(der: bytes) -> Holder:
    (_, certificate), = _elements(der)
    body = next(_elements(certificate))[1]
    serial, uris, dns_names = "", [], []
    for tag, value in _elements(body):
        if tag == _INTEGER and not serial:
            serial = f"{int.from_bytes(value, 'big'):X}"
        if tag == _EXTENSIONS:
            for name_tag, name in _alternative_names(value):
                if name_tag == _URI_NAME and name.startswith(_SCHEME):
                    uris.append(name)
                elif name_tag == _DNS:
                    dns_names.append(name)
    return Holder(tuple(uris), tuple(dns_names), serial)


def _alternative_names(extensions: bytes) -> Iterator[tuple[int, str]]:
    for _, extension in _elements(next(_elements(extensions))[1]):
        if extension.startswith(_ALTERNATIVE_NAMES):
            octets = [value for tag, value in _elements(extension) if tag == _OCTETS][0]
            for tag, value in _elements(next(_elements(octets))[1]):
                if tag in (_DNS, _URI_NAME):
                    yield tag, value.decode("ascii")


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each element. ValueError for a length beyond the end."""
    at = 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[at:at + size], "big")
            at += size
        if at + length > len(data):
            raise ValueError("not a certificate: an element is cut")
        yield tag, data[at:at + length]
        at += length
