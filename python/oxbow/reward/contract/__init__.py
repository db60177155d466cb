# SPDX-License-Identifier: Apache-2.0
"""The contract of a reward server, as checks that run against any server of the protocol.

`oxbow-reward check FILE.py` starts a server for the file's rewards; `--server HOST:PORT` asks a running one.
"""
