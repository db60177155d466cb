# SPDX-License-Identifier: Apache-2.0
"""Exports a diffusers transformer as one file that oxbow runs without Python. See README.md."""
