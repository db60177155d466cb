# SPDX-License-Identifier: Apache-2.0
"""The processes of a run, where each may be, and with which arguments it starts."""
from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Mapping

ANY_PORT = "{host}:0"


@dataclass(frozen=True)
class Setting:
    """Settings that all processes of a run share."""

    run_dir: Path
    config: Mapping[str, Any]
    binaries: str  # Folder of oxbow's programs on every node.
    directory: str = "."  # Working directory of the processes: a config's paths are relative to it.
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def resolved(self) -> str:
        return str(self.run_dir / "config.resolved.yaml")

    @property
    def ranks(self) -> int:
        return int(self.config["learner"]["ranks"])

    @property
    def shards(self) -> int:
        """Replay buffers; a prompt lives on one of them."""
        return int(self.config["services"]["replay_shards"]) if self.uses_buffer else 0

    @property
    def own_rewards(self) -> list[str]:
        """Rewards that the run serves itself: those with an entry in reward.scorers, and without endpoints all."""
        rewards = self.config["reward"]
        entries = {scorer["name"] for scorer in rewards["scorers"]}
        names = [*rewards["observed"], *(term["name"] for term in rewards["terms"])]
        return [name for name in names if name in entries or not rewards["endpoints"]]

    @property
    def uses_buffer(self) -> bool:
        """As config::UsesReplayBuffer: the run replays, or its adaptation keeps tables."""
        replay = self.config["replay"]
        return bool(replay["fraction"] or replay["late_binding"] or replay["added"] or self.config["adaptation"]["enabled"])

    def program(self, name: str, listen: str) -> list[str]:
        services = self.config["services"]
        return [f"{self.binaries}/{name}", "--listen", listen, "--metrics-listen", ANY_PORT,
                "--log-level", services["log_level"], "--log-format", services["log_format"]]

    def log(self, name: str) -> str:
        return str(self.run_dir / "logs" / f"{name}.log")


def buffer_name(setting: Setting, shard: int) -> str:
    """As `oxbow train` names it. With two digits names sort as shards do."""
    return "replay_buffer" if setting.shards == 1 else f"replay_buffer-{shard:02}"


def buffer(setting: Setting, listen: str, shard: int = 0) -> list[str]:
    folder = "replay" if setting.shards == 1 else f"replay-{shard:02}"
    return [*setting.program("replay_buffer", listen), "--data", str(setting.run_dir / folder),
            "--config", setting.resolved]


def reward_server(setting: Setting, listen: str) -> list[str]:
    return [*setting.program("reward_server", listen), "--config", setting.resolved,
            "--rewards", ",".join(setting.own_rewards)]


def learner(setting: Setting, listen: str, buffer_at: str, rewards_at: list[str]) -> list[str]:
    """One rank. `--resume` from the first start on: it goes on from the newest checkpoint, if there is one."""
    buffer_flag = ["--buffer", buffer_at] if buffer_at else []
    return [*setting.program("learner", listen), "--config", setting.resolved, "--run-dir", str(setting.run_dir),
            *buffer_flag, "--reward", ",".join([*setting.config["reward"]["endpoints"], *rewards_at]), "--resume"]


def rank_environment(setting: Setting, rank: int, master: str, restart: int) -> dict[str, str]:
    """The variables that torchrun would set for a rank; nothing where there is one rank. Ray shows each rank its own GPU alone."""
    if setting.ranks == 1:
        return {}
    host, _, port = master.rpartition(":")
    return {"RANK": str(rank), "WORLD_SIZE": str(setting.ranks), "LOCAL_RANK": "0", "MASTER_ADDR": host,
            "MASTER_PORT": port, "TORCHELASTIC_RESTART_COUNT": str(restart)}


def worker(setting: Setting, name: str, learner_at: str, gpu: bool) -> list[str]:
    """The supervisor ends it, so it waits for its learner as long as it takes."""
    return [*setting.program("rollout_worker", ANY_PORT), "--learner", learner_at, "--id", name,
            "--device", "cuda:0" if gpu else "cpu", "--give-up-after", "0"]
