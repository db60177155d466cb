# SPDX-License-Identifier: Apache-2.0
"""Runs a training over a Ray cluster: `oxbow-ray RUN.yaml` (docs/launching.md, Ray)."""
