# SPDX-License-Identifier: Apache-2.0
"""endpoints.json: where the processes of a live run listen."""
from __future__ import annotations

import json
from pathlib import Path


def endpoint_of(directory: Path, service: str, otherwise: str | None = None) -> str:
    """HOST:PORT of a service, or of the other one where the run has no such service. FileNotFoundError if the run was
    never started or has neither."""
    path = directory / "endpoints.json"
    if not path.exists():
        raise FileNotFoundError(f"the run has no processes that could be asked ({path.name} is missing): {directory}")
    services = {one["name"]: one.get("grpc", "") for one in json.loads(path.read_text(encoding="utf-8"))["services"]}
    found = services.get(service) or (services.get(otherwise) if otherwise else None)
    if not found:
        raise FileNotFoundError(f"the run has no {otherwise or service}: {directory}")
    return found
