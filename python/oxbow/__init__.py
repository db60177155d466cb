# SPDX-License-Identifier: Apache-2.0
"""oxbow from Python.

`Run`: a run's numbers, configuration and pictures. `oxbow.replay`: entries of a live replay buffer as arrays.
`oxbow.reward`: rewards of your own, served to oxbow's learner. `oxbow.follow`: copies a run to an experiment tracker.
"""
from .run import Run

__all__ = ["Run"]
__version__ = "0.1.0"
