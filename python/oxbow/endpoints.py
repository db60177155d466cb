# SPDX-License-Identifier: Apache-2.0
"""endpoints.json: where the processes of a live run listen."""
from __future__ import annotations

import json
from pathlib import Path


def endpoint_of(directory: Path, service: str) -> str:
    """HOST:PORT of a service. FileNotFoundError if the run was never started or has no such service."""
    path = directory / "endpoints.json"
    if not path.exists():
        raise FileNotFoundError(f"the run has no processes that could be asked ({path.name} is missing): {directory}")
    services = {one["name"]: one.get("grpc", "") for one in json.loads(path.read_text(encoding="utf-8"))["services"]}
    if not services.get(service):
        raise FileNotFoundError(f"the run has no {service}: {directory}")
    return services[service]
