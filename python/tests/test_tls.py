# SPDX-License-Identifier: Apache-2.0
"""The callers that a reward server takes under TLS, and what a server's own certificate must be."""
import base64
import re
import socket
import ssl
import tempfile
import unittest
from pathlib import Path

import certificates
import grpc
from servers import ask, grey, levels, serving, values

from oxbow.reward import reward
from oxbow.reward.access import CALLERS, RevocationList
from oxbow.reward.certificate import holder_of
from oxbow.reward.contract.client import request_of
from oxbow.reward.status import SetupError
from oxbow.reward.tls import Tls, may_listen

ROLE_TABLE = Path(__file__).resolve().parents[2] / "src" / "rpc" / "role_table.cc"


def level():
    return reward("level", range=(0, 255), wait_ms=0)(levels)


class TlsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = certificates.make(folder.name)

    def tls(self, who, **arguments):
        return certificates.tls(self.folder, who, **arguments)

    def score_as(self, caller, **arguments):
        """The code that a call of Score by this caller ends with."""
        with serving(level(), tls=self.tls("reward", **arguments), caller=self.tls(caller)) as (_, client):
            return client.score(request_of([grey(1)])).code.name

    def test_workers_and_learners_may_have_pictures_scored(self):
        for name in ("worker", "named", "learner", "both"):
            with self.subTest(name):
                self.assertEqual(self.score_as(name), "OK")

    def test_others_may_not(self):
        for name in ("operator", "buffer", "reward", "stranger", "nobody"):
            with self.subTest(name):
                self.assertEqual(self.score_as(name), "PERMISSION_DENIED")

    def test_operators_may_ask_what_is_there_and_all_roles_for_health(self):
        with serving(level(), tls=self.tls("reward"), caller=self.tls("operator")) as (_, client):
            self.assertEqual(client.describe().rewards[0].name, "level")
        with serving(level(), tls=self.tls("reward"), caller=self.tls("buffer")) as (_, client):
            self.assertEqual(client.health(""), 1)
            with self.assertRaisesRegex(SetupError, "only learner or worker or operator may"):
                client.describe()

    def test_without_roles_every_certificate_of_the_authority_may(self):
        self.assertEqual(self.score_as("nobody", roles=False), "OK")

    def test_a_caller_without_a_certificate_is_refused(self):
        with serving(level(), tls=self.tls("reward"), caller=Tls()) as (server, _):
            ca = grpc.ssl_channel_credentials((self.folder / "ca.crt").read_bytes())
            for channel in (grpc.insecure_channel(server.endpoint), grpc.secure_channel(server.endpoint, ca)):
                with channel, self.assertRaises(grpc.FutureTimeoutError):
                    grpc.channel_ready_future(channel).result(timeout=2)

    def test_a_revoked_certificate_is_refused_from_the_next_call_on(self):
        revoked = self.folder / "revoked"
        revoked.write_text("# nobody\n")
        serial = certificates.run("x509", "-in", self.folder / "worker.crt", "-noout", "-serial")
        with serving(level(), tls=self.tls("reward", revoked=str(revoked)), caller=self.tls("worker")) as (_, client):
            self.assertEqual(values(ask(client, grey(1))), [1])
            for text in (serial, "oxbow://oxbow/worker  # lost\n"):
                revoked.write_text(text)
                answer = client.score(request_of([grey(1)]))
                self.assertEqual(answer.code.name, "PERMISSION_DENIED")
                self.assertIn("revoked", answer.message)

    def test_a_list_of_revoked_ones_is_plain(self):
        path = self.folder / "list"
        path.write_text("4F:6B:0C\noxbow://a/worker\nwhat is this\n")
        with self.assertRaisesRegex(SetupError, "list:3: neither"):
            RevocationList(path)

    def test_new_files_are_used_by_new_connections(self):
        own = self.tls("reward")
        copy = Tls(*(str(self.folder / f"copy.{end}") for end in ("ca", "crt", "key")))
        for source, target in ((own.ca, copy.ca), (own.cert, copy.cert), (own.key, copy.key)):
            Path(target).write_bytes(Path(source).read_bytes())
        with serving(level(), tls=copy, caller=self.tls("worker")) as (server, client):
            ask(client, grey(1))
            before = peer_certificate(server.endpoint)
            for source, target in ((self.tls("both").key, copy.key), (self.tls("both").cert, copy.cert)):
                Path(target).write_bytes(Path(source).read_bytes())
            self.assertNotEqual(before, peer_certificate(server.endpoint))

    def test_a_server_needs_the_role_of_one(self):
        for name, words in (("worker", "takes the role reward, not oxbow://oxbow/worker"), ("nobody", "no role in it")):
            with self.subTest(name), self.assertRaisesRegex(SetupError, words), serving(level(), tls=self.tls(name)):
                pass
        with self.assertRaisesRegex(SetupError, "of the fleet oxbow, not of mine"):
            self.tls("reward", name="mine").access()

    def test_files_that_do_not_fit_are_one_line(self):
        good = self.tls("reward")
        for wrong in (Tls(good.ca, good.cert, self.tls("worker").key), Tls(good.key, good.cert, good.key),
                      Tls(good.ca, good.ca, good.key), Tls(good.ca, "none", good.key), Tls(good.ca, good.cert)):
            with self.subTest(str(wrong)), self.assertRaises(SetupError) as raised:
                wrong.check()
            self.assertNotIn("\n", str(raised.exception))

    def test_holders_are_read_as_openssl_reads_them(self):
        for name, uris in certificates.NAMES.items():
            holder = holder_of((self.folder / f"{name}.crt").read_text())
            serial = certificates.run("x509", "-in", self.folder / f"{name}.crt", "-noout", "-serial")
            self.assertEqual((list(holder.uris), holder.dns_names), (uris, ("oxbow",)))
            self.assertEqual(f"serial={holder.serial}", serial.strip().replace("serial=0", "serial="))

    def test_every_damaged_certificate_is_an_error_or_read(self):
        der = ssl.PEM_cert_to_DER_cert((self.folder / "named.crt").read_text())
        for at in range(len(der)):
            for damaged in (der[:at], der[:at] + bytes([der[at] ^ 0xFF]) + der[at + 1:]):
                pem = f"-----BEGIN CERTIFICATE-----\n{base64.b64encode(damaged).decode()}\n-----END CERTIFICATE-----"
                try:
                    holder_of(pem)
                except ValueError:
                    pass


def peer_certificate(endpoint):
    host, port = endpoint.rsplit(":", 1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain) as one:
        return one.getpeercert(binary_form=True)


class ListenTest(unittest.TestCase):
    def test_plaintext_stays_on_this_machine_unless_allowed(self):
        for address in ("127.0.0.1:0", "[::1]:0", "localhost:7", "127.8.8.8:1"):
            may_listen(address, Tls(), plaintext=False)
        for address in ("0.0.0.0:0", "[::]:0", "example.org:1", "10.0.0.1:1"):
            with self.assertRaises(SetupError):
                may_listen(address, Tls(), plaintext=False)
            may_listen(address, Tls(), plaintext=True)


@unittest.skipUnless(ROLE_TABLE.exists(), "no checkout")
class RoleTableTest(unittest.TestCase):
    def test_callers_are_those_of_the_table_of_all_services(self):
        text = ROLE_TABLE.read_text()
        roles = dict(re.findall(r"constexpr Roles (k\w+) = ([^;]+);", text))

        def names(expression):
            return {name for part in expression.split("|") for name in
                    ([part.strip().removeprefix("Role::k").lower()] if part.strip().startswith("Role::")
                     else names(roles[part.strip()]))}

        rows = dict(re.findall(r'\{"(/[\w.]+/\w+)",\s*([\w |]+),', text))
        for method, callers in CALLERS.items():
            self.assertEqual(set(callers), names(rows[method]), method)


if __name__ == "__main__":
    unittest.main()
