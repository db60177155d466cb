#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a software bill of materials: CycloneDX 1.5 JSON of Debian packages and Python distributions.

  sbom.py --name oxbow/torch --version 0.1.0 --dpkg packages.txt [--python SITE-PACKAGES] >sbom.cdx.json
  sbom.py --check sbom.cdx.json
  sbom.py --self-test

packages.txt has a line for each package: name, version and architecture, separated by tabs, as

  dpkg-query -W -f '${Package}\\t${Version}\\t${Architecture}\\n'

prints it. The same input gives the same bytes: there is no time in it, and the serial number follows from the content.
--check says what is wrong with a bill, by the rules of the format for what is in it, and exits 1 if anything is.
"""
import argparse
import json
import re
import sys
import tempfile
import uuid
from email.parser import Parser
from pathlib import Path
from urllib.parse import quote

TYPES = {"application", "container", "library", "operating-system"}
PURL = re.compile(r"pkg:[a-z][a-z0-9.+-]*/[^\s@?#]+@[^\s@?#]+(\?[^\s?#]+)?")
SERIAL = re.compile(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def component(name, version, purl):
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def debian_components(lines):
    for line in lines:
        if not line.strip():
            continue
        name, version, architecture = line.rstrip("\n").split("\t")
        yield component(name, version, f"pkg:deb/debian/{quote(name)}@{quote(version, safe='')}?arch={architecture}")


def python_components(folder):
    for metadata in sorted(Path(folder).glob("*.dist-info/METADATA")):
        said = Parser().parsestr(metadata.read_text(encoding="utf-8", errors="replace"), headersonly=True)
        name, version = said["Name"], said["Version"]
        normal = re.sub(r"[-_.]+", "-", name).lower()
        yield component(name, version, f"pkg:pypi/{normal}@{quote(version, safe='')}")


def bill(name, version, components):
    by_purl = {one["purl"]: one for one in components}
    body = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "container", "bom-ref": f"{name}@{version}", "name": name, "version": version}},
        "components": [by_purl[purl] for purl in sorted(by_purl)],
    }
    body["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))}"
    return body


def component_breaches(one, where):
    for key in ("type", "name", "version", "bom-ref"):
        if not isinstance(one.get(key), str) or not one[key]:
            yield f"{where}: no {key}"
    if one.get("type") not in TYPES:
        yield f"{where}: type {one.get('type')}"
    if "purl" in one and not PURL.fullmatch(one["purl"]):
        yield f"{where}: not a package URL: {one['purl']}"
    unknown = set(one) - {"type", "name", "version", "bom-ref", "purl"}
    if unknown:
        yield f"{where}: unknown: {sorted(unknown)}"


def breaches(body):
    if not isinstance(body, dict):
        yield "not an object"
        return
    if body.get("bomFormat") != "CycloneDX" or body.get("specVersion") != "1.5":
        yield "not CycloneDX 1.5"
    if type(body.get("version")) is not int or body["version"] < 1:
        yield "version is not a positive whole number"
    if not SERIAL.fullmatch(str(body.get("serialNumber"))):
        yield f"serialNumber is no URN of a UUID: {body.get('serialNumber')}"
    yield from component_breaches(body.get("metadata", {}).get("component", {}), "metadata.component")
    components = body.get("components")
    if not isinstance(components, list) or not components:
        yield "no components"
        return
    references = set()
    for i, one in enumerate(components):
        yield from component_breaches(one, f"components[{i}]")
        if "purl" not in one:
            yield f"components[{i}]: no purl"
        if one.get("bom-ref") in references:
            yield f"components[{i}]: bom-ref is there twice: {one['bom-ref']}"
        references.add(one.get("bom-ref"))
    unknown = set(body) - {"bomFormat", "specVersion", "version", "serialNumber", "metadata", "components"}
    if unknown:
        yield f"unknown: {sorted(unknown)}"


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        info = Path(folder) / "Foo_Bar-1.0+cpu.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Foo_Bar\nVersion: 1.0+cpu\n\nName: not this\n")
        lines = ["libssl3\t3.0.19-1~deb12u1\tamd64\n", "tzdata\t1:2025b-0\tall\n", "libssl3\t3.0.19-1~deb12u1\tamd64\n"]
        made = bill("oxbow/torch", "0.1.0", [*debian_components(lines), *python_components(folder)])
    again = bill("oxbow/torch", "0.1.0", reversed(made["components"]))
    assert made == again, "the order of the input shows"
    assert [one["purl"] for one in made["components"]] == [
        "pkg:deb/debian/libssl3@3.0.19-1~deb12u1?arch=amd64", "pkg:deb/debian/tzdata@1%3A2025b-0?arch=all",
        "pkg:pypi/foo-bar@1.0%2Bcpu"], made["components"]
    assert not list(breaches(made)), list(breaches(made))
    assert bill("oxbow/torch", "0.1.1", made["components"])["serialNumber"] != made["serialNumber"]
    for path, value, said in (
            (("specVersion",), "1.3", "not CycloneDX"), (("version",), True, "version is not"),
            (("serialNumber",), "7", "serialNumber"), (("components",), [], "no components"),
            (("components", 0, "type"), "thing", "type thing"), (("components", 0, "version"), "", "no version"),
            (("components", 0, "purl"), "libssl3", "not a package URL"),
            (("components", 0, "bom-ref"), made["components"][1]["bom-ref"], "there twice"),
            (("metadata",), {}, "metadata.component: no name"), (("colour",), "red", "unknown")):
        broken = json.loads(json.dumps(made))
        place = broken
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        assert any(said in breach for breach in breaches(broken)), (path, list(breaches(broken)))
    print("sbom: the self-test passes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--name")
    parser.add_argument("--version")
    parser.add_argument("--dpkg", type=Path)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--check", type=Path)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        self_test()
        return 0
    if arguments.check:
        found = list(breaches(json.loads(arguments.check.read_text())))
        for breach in found:
            print(f"{arguments.check}: {breach}")
        return 1 if found else 0
    if not (arguments.name and arguments.version and arguments.dpkg):
        parser.error("--name, --version and --dpkg belong together")
    components = list(debian_components(arguments.dpkg.read_text().splitlines()))
    if arguments.python:
        components += python_components(arguments.python)
    print(json.dumps(bill(arguments.name, arguments.version, components), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
