# SPDX-License-Identifier: Apache-2.0
"""Mutual TLS with the files and rules of oxbow's services (src/rpc/tls.h)."""
from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from ..protocol import CHANNEL_OPTIONS
from .access import Access, RevocationList, fleet_of
from .addresses import host_and_port, is_loopback
from .certificate import holder_of
from .status import EXIT_DATA, SetupError


@dataclass(frozen=True)
class Tls:
    """The flags --tls-*; each may come from the environment, as OXBOW_TLS_CA and so on."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    name: str = ""
    roles: bool = True
    revoked: str = ""

    @classmethod
    def from_environment(cls) -> Tls:
        read = os.environ.get
        return cls(read("OXBOW_TLS_CA", ""), read("OXBOW_TLS_CERT", ""), read("OXBOW_TLS_KEY", ""),
                   read("OXBOW_TLS_NAME", ""), read("OXBOW_TLS_ROLES", "") != "off",
                   read("OXBOW_TLS_REVOKED", ""))

    @property
    def used(self) -> bool:
        return bool(self.ca or self.cert or self.key)

    def check(self) -> None:
        """SetupError in one line for what no handshake could do with."""
        if not self.used:
            if self.name or self.revoked:
                raise SetupError("--tls-name and --tls-revoked are of use only with --tls-ca, --tls-cert and "
                                 "--tls-key")
            return
        for flag in ("ca", "cert", "key"):
            path = getattr(self, flag)
            if not path:
                raise SetupError(f"--tls-ca, --tls-cert and --tls-key belong together; missing: --tls-{flag}")
            if not os.path.isfile(path):
                raise SetupError(f"--tls-{flag}: no such file: {path}", EXIT_DATA)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            flag, path = "ca", self.ca
            context.load_verify_locations(path)
            flag, path = "cert", self.cert
            context.load_cert_chain(self.cert, self.key)
        except (ssl.SSLError, OSError) as error:
            raise SetupError(f"--tls-{flag}: {error.strerror or error}: {path}", EXIT_DATA) from None

    def access(self) -> Access | None:
        """The judge of callers; None without TLS. Requires check()."""
        if not self.used:
            return None
        fleet = ""
        if self.roles:
            try:
                own = holder_of(Path(self.cert).read_text(encoding="ascii"))
            except ValueError as error:
                raise SetupError(f"--tls-cert: {error}: {self.cert}", EXIT_DATA) from None
            fleet = fleet_of(own, self.name, self.cert)
        revoked = RevocationList(Path(self.revoked)) if self.revoked else None
        return Access(fleet, self.name, revoked)

    def server_credentials(self) -> grpc.ServerCredentials:
        """Asks each caller for a certificate of the authority. New connections use changed files."""
        read = (self._files(), self._changed())

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal read
            try:
                changed = self._changed()
                if changed == read[1]:
                    return None
                read = (self._files(), changed)
            except OSError:
                return None  # Half renewed: the next connection looks again.
            return _configuration(*read[0])

        return grpc.dynamic_ssl_server_credentials(_configuration(*read[0]), fetch, True)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        ca, cert, key = self._files()
        return grpc.ssl_channel_credentials(ca, key, cert)

    def channel(self, endpoint: str) -> grpc.Channel:
        """A channel to a service of the fleet, with this certificate if there is one."""
        if not self.used:
            return grpc.insecure_channel(endpoint, CHANNEL_OPTIONS)
        name = [("grpc.ssl_target_name_override", self.name)] if self.name else []
        return grpc.secure_channel(endpoint, self.channel_credentials(), CHANNEL_OPTIONS + name)

    def _files(self) -> tuple[bytes, bytes, bytes]:
        ca, cert, key = (Path(path).read_bytes() for path in (self.ca, self.cert, self.key))
        return ca, cert, key

    def _changed(self) -> tuple[int, ...]:
        return tuple(os.stat(path).st_mtime_ns for path in (self.ca, self.cert, self.key))


def _configuration(ca: bytes, cert: bytes, key: bytes) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(key, cert)], root_certificates=ca)


def may_listen(address: str, tls: Tls, plaintext: bool) -> None:
    """SetupError if other machines could reach this address without TLS and nobody allowed it."""
    if plaintext and tls.used:
        raise SetupError("--plaintext and --tls-cert exclude each other")
    if not (tls.used or plaintext or is_loopback(host_and_port(address)[0])):
        raise SetupError("listening beyond this machine takes --tls-ca, --tls-cert and --tls-key, or --plaintext "
                         f"where the network can be trusted: {address}")
