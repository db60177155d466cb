# SPDX-License-Identifier: Apache-2.0
"""An authority and certificates as `oxbow certificates` makes them, with the openssl command."""
import shutil
import subprocess
import unittest
from pathlib import Path

from oxbow.reward.tls import Tls

NAMES = {
    "reward": ["oxbow://oxbow/reward"],
    "worker": ["oxbow://oxbow/worker"],
    "named": ["oxbow://oxbow/worker/gpu-1"],
    "learner": ["oxbow://oxbow/learner"],
    "operator": ["oxbow://oxbow/operator"],
    "buffer": ["oxbow://oxbow/buffer"],
    "stranger": ["oxbow://other/worker"],
    "nobody": [],
    "both": ["oxbow://oxbow/worker", "oxbow://oxbow/reward"],
}


def make(folder):
    """Certificates in FOLDER/NAME.{crt,key}. Skips the tests without openssl."""
    if shutil.which("openssl") is None:
        raise unittest.SkipTest("needs the openssl command")
    folder = Path(folder)
    run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
        "-subj", "/CN=authority", "-keyout", folder / "ca.key", "-out", folder / "ca.crt")
    for name, uris in NAMES.items():
        names = ",".join(["DNS:oxbow", "IP:127.0.0.1", *(f"URI:{uri}" for uri in uris)])
        (folder / "names").write_text(f"subjectAltName={names}\n")
        run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
            "-keyout", folder / f"{name}.key", "-out", folder / "request")
        run("x509", "-req", "-in", folder / "request", "-CA", folder / "ca.crt", "-CAkey", folder / "ca.key",
            "-CAcreateserial", "-days", "1", "-extfile", folder / "names", "-out", folder / f"{name}.crt")
    return folder


def run(*arguments):
    return subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def tls(folder, who, **arguments):
    return Tls(str(folder / "ca.crt"), str(folder / f"{who}.crt"), str(folder / f"{who}.key"), **arguments)
