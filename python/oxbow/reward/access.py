# SPDX-License-Identifier: Apache-2.0
"""Decides which caller may make which call, as oxbow's own servers do (src/rpc/access.h)."""
from __future__ import annotations

import re
from pathlib import Path
from typing import Mapping

import grpc

from .certificate import Holder, holder_of
from .status import EXIT_DATA, SetupError, StatusError

# The rows of src/rpc/role_table.cc that a reward server answers.
CALLERS = {
    "/oxbow.v1.Reward/Describe": ("learner", "worker", "operator"),
    "/oxbow.v1.Reward/Score": ("learner", "worker"),
    "/grpc.health.v1.Health/Check": ("learner", "worker", "buffer", "reward", "operator"),
}
_REMEMBERED_MAX = 4096


class Refused(StatusError):
    """A certificate does not allow the call. `reason` is the label of oxbow_rpc_refused_total."""

    def __init__(self, reason: str, message: str,
                 code: grpc.StatusCode = grpc.StatusCode.PERMISSION_DENIED):
        super().__init__(code, message)
        self.reason = reason


class Access:
    """Checks callers by the URIs of their certificates. `name`: DNS name that each must have."""

    def __init__(self, fleet: str, name: str = "", revoked: RevocationList | None = None):
        self._fleet = fleet
        self._name = name.lower()
        self._revoked = revoked
        self._holders: dict[str, Holder] = {}

    def check(self, method: str, auth_context: Mapping[str, list[bytes]]) -> None:
        """Raises Refused unless the caller may make this call."""
        holder = self._holder(b"".join(auth_context.get("x509_pem_cert", [])).decode("ascii", "replace"))
        if self._name and self._name not in (name.lower() for name in holder.dns_names):
            raise Refused("fleet", "the caller is not of this fleet", grpc.StatusCode.UNAUTHENTICATED)
        if self._revoked and self._revoked.has(holder):
            raise Refused("revoked", f"the certificate is revoked (--tls-revoked): {holder.name}, "
                                     f"serial number {holder.serial}")
        if not self._fleet:  # --tls-roles off
            return
        roles = holder.roles_in(self._fleet)
        if not roles:
            raise Refused("fleet", f"the certificate has no role in the fleet {self._fleet} "
                                   f"(oxbow certificates makes some): {holder.name}")
        wanted = CALLERS.get(method, ())
        if roles.isdisjoint(wanted):
            raise Refused("role", f"{holder.name} may not call {method}, "
                                  f"only {' or '.join(wanted) or 'nobody'} may")

    def _holder(self, pem: str) -> Holder:
        """Certificates are parsed once; one that cannot be read has no role."""
        if pem not in self._holders:
            if len(self._holders) >= _REMEMBERED_MAX:
                self._holders.clear()
            try:
                self._holders[pem] = holder_of(pem)
            except ValueError:
                self._holders[pem] = Holder()
        return self._holders[pem]


def fleet_of(own: Holder, name: str, path: str) -> str:
    """The fleet of a reward server's own certificate. SetupError if it is not fit for one."""
    if not own.uris:
        raise SetupError("--tls-cert: no role in it (a URI oxbow://FLEET/ROLE): make certificates with `oxbow "
                         f"certificates`, or give every process --tls-roles off: {path}", EXIT_DATA)
    if len(own.fleets) > 1:
        raise SetupError(f"--tls-cert: roles of more than one fleet in it: {own.name}: {path}", EXIT_DATA)
    fleet, = own.fleets
    if name and fleet != name:
        raise SetupError(f"--tls-cert: it is of the fleet {fleet}, not of {name} (--tls-name): {path}", EXIT_DATA)
    if "reward" not in own.roles_in(fleet):
        raise SetupError(f"--tls-cert: this process takes the role reward, not {own.name}: {path}", EXIT_DATA)
    return fleet


class RevocationList:
    """A file of identities and serial numbers, one a line, read again when it changes."""

    _SERIAL = re.compile(r"(?:serial=)?([0-9A-Fa-f:]+)")

    def __init__(self, path: Path):
        self._path = path
        self._read_at = 0
        self._entries = self._read()

    def has(self, holder: Holder) -> bool:
        try:
            if self._path.stat().st_mtime_ns != self._read_at:
                self._entries = self._read()
        except (OSError, SetupError):
            pass  # While the file cannot be read, the last good content counts.
        return holder.serial in self._entries or not self._entries.isdisjoint(holder.uris)

    def _read(self) -> set[str]:
        try:
            changed, text = self._path.stat().st_mtime_ns, self._path.read_text(encoding="utf-8")
        except OSError as error:
            raise SetupError(f"--tls-revoked: {error.strerror}: {self._path}", EXIT_DATA) from None
        entries = set()
        for number, line in enumerate(text.splitlines(), 1):
            word = line.split("#")[0].strip()
            serial = self._SERIAL.fullmatch(word)
            if serial:
                entries.add(serial.group(1).replace(":", "").upper().lstrip("0") or "0")
            elif word.startswith("oxbow://"):
                entries.add(word)
            elif word:
                raise SetupError(f"--tls-revoked: {self._path}:{number}: neither an identity nor a serial number")
        self._read_at = changed
        return entries
