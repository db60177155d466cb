# SPDX-License-Identifier: Apache-2.0
"""The messages of the reward protocol."""
from __future__ import annotations

from ..protocol import MESSAGE_BYTES_MAX, REVISION, message

REWARD = "oxbow.v1.Reward"
HEALTH = "grpc.health.v1.Health"
SERVING, NOT_SERVING = 1, 2  # grpc.health.v1.HealthCheckResponse.ServingStatus

DescribeRequest = message("oxbow.v1.DescribeRequest")
DescribeResponse = message("oxbow.v1.DescribeResponse")
Image = message("oxbow.v1.Image")
ScoreItem = message("oxbow.v1.ScoreItem")
ScoreRequest = message("oxbow.v1.ScoreRequest")
ScoreResponse = message("oxbow.v1.ScoreResponse")
HealthCheckRequest = message("grpc.health.v1.HealthCheckRequest")
HealthCheckResponse = message("grpc.health.v1.HealthCheckResponse")

__all__ = ["MESSAGE_BYTES_MAX", "REVISION", "REWARD", "HEALTH", "SERVING", "NOT_SERVING", "DescribeRequest", "DescribeResponse",
           "Image", "ScoreItem", "ScoreRequest", "ScoreResponse", "HealthCheckRequest", "HealthCheckResponse"]
