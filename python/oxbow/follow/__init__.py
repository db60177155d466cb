# SPDX-License-Identifier: Apache-2.0
"""Copies a run to an experiment tracker while it trains: `oxbow-follow RUN --to wandb|swanlab|mlflow`.

The run knows nothing of it. A follower may start before, during or after the run, and may be killed: the next one
goes on behind the last step that was copied.
"""
