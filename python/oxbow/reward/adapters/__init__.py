# SPDX-License-Identifier: Apache-2.0
"""Rewards that were written for other trainers, unchanged.

    flow_grpo      a function fn(images, prompts, metadata)
    flow_factory   a reward class of Flow-Factory
    geneval, deqa  the servers that flow_grpo asks over HTTP with pickles
"""
from .flow_factory import flow_factory
from .flow_grpo import flow_grpo
from .pickle_http import deqa, geneval

__all__ = ["deqa", "flow_factory", "flow_grpo", "geneval"]
