# SPDX-License-Identifier: Apache-2.0
"""A client of oxbow's replay buffer: entries in, entries out."""
from .client import Entry, Inserter, Outcome, ReplayBuffer

__all__ = ["Entry", "Inserter", "Outcome", "ReplayBuffer"]
