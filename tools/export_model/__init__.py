"""Exports a diffusers transformer as one file that oxbow runs without Python. See README.md."""
