# SPDX-License-Identifier: Apache-2.0
"""Wrong inputs, as people make them. Each ends soon with one line that names the thing, the place and the fix."""
import json
import socket

import torch
from safetensors.torch import load_file, save_file

import adapters
from findings import says
from world import free_port

SOON = 10  # Seconds.


def lora_of_another_shape(world):
    """The adapter of a model that is twice as wide."""
    tensors = load_file(world.folder / "sd3_lora.safetensors")
    wider = {name: torch.cat([value, value], dim=1 if name.endswith("lora_A.weight") else 0) for name, value in tensors.items()}
    save_file(wider, str(world.folder / "wider.safetensors"))


def two_loras(world):
    folder = world.folder / "two"
    folder.mkdir()
    tensors = load_file(world.folder / "sd3_lora.safetensors")
    save_file(tensors, str(folder / "pytorch_lora_weights.safetensors"))
    theirs = {name.replace("transformer.", "base_model.model.", 1): value + 1 for name, value in tensors.items()}
    save_file(theirs, str(folder / "adapter_model.safetensors"))
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": adapters.RANK, "lora_alpha": adapters.ALPHA, "target_modules": adapters.TARGETS["sd3"]}))


def dora(world):
    tensors = load_file(world.folder / "sd3_lora.safetensors")
    module = next(iter(tensors)).removesuffix(".lora_A.weight")
    save_file(tensors | {f"{module}.lora_magnitude_vector": torch.ones(64, dtype=torch.bfloat16)}, str(world.folder / "dora.safetensors"))


# what: (settings of the run, what the line says besides).
CONFIGURED = {
    "a model directory that is not there": (["model.path=/nowhere/narrow-sd3"], ["/nowhere/narrow-sd3", "model.path"]),
    "an id that the Hub cache does not have": (["model.path=somebody/not-fetched"], ["somebody/not-fetched", ("oxbow fetch", "hf download")]),
    "prompts that are not there": (["prompts.eval=no_such.txt"], ["no_such.txt", "prompts.eval"]),
    "a LoRA that is not there": (["model.lora.path=no_such.safetensors"], ["no_such.safetensors", "model.lora.path"]),
    "a LoRA of another shape": (["model.lora.path=wider.safetensors"], ["wider.safetensors", ("to_q", "attn"), ("128", "64")]),
    "two LoRAs in one folder": (["model.lora.path=two"], ["two", ("pytorch_lora_weights", "adapter_model")]),
    "a LoRA with DoRA's magnitudes": (["model.lora.path=dora.safetensors"], ["dora.safetensors", ("dora", "magnitude")]),
    "a reward that nobody has": (["reward.terms=[{name: rednes, weight: 1}]", "reward.endpoints=[]"], ["rednes", "reward.terms"]),
    "a height that the model does not take": (["sampling.height=500"], ["sampling.height", "500"]),
    "a key that is spelled wrongly": (["sampling.guidence=2"], ["sampling.guidence", "`guidance`"]),
}


def one_line(told):
    """Not a page of them, no trace."""
    lines = [line for _, line in told.lines if "warning" not in line]
    assert len(lines) <= 3, told.text
    assert "Traceback" not in told.text and "OXBOW_CHECK" not in told.text, told.text


def check(world, findings, endpoint):
    lora_of_another_shape(world)
    two_loras(world)
    dora(world)
    base = [] if "lora" in world.without else ["--set", "model.lora.path="]
    for what, (settings, parts) in CONFIGURED.items():
        with findings.see(f"mistake: {what}"):
            flags = base + [word for setting in settings for word in ("--set", setting)]
            told = world.oxbow("validate", "sd3.yaml", *flags)
            assert told.code not in (0, 1) and isinstance(told.code, int), f"exit code {told.code}\n{told.text}"
            assert told.seconds <= SOON, f"{told.seconds:.0f} s"
            one_line(told)
            says(told.text, *parts)
    with findings.see("mistake: an endpoint at which nobody answers, said by validate and doctor"):
        nobody = f"127.0.0.1:{free_port()}"
        for command in ("validate", "doctor"):
            told = world.oxbow(command, "sd3.yaml", *base, "--set", f"reward.endpoints=[{nobody}]")
            says(told.text, nobody)
            assert told.seconds <= SOON, f"{command}: {told.seconds:.0f} s"
    with findings.see("mistake: a port that is taken ends train at once, before anything is loaded"):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            told = world.start("train", "sd3.yaml", *base, "--name", "taken", "--listen", address).wait(60)
        assert isinstance(told.code, int) and told.code != 0, told.text
        says(told.text, address.split(":")[1], ("in use", "taken"))
        assert told.seconds <= SOON, f"{told.seconds:.0f} s"
    with findings.see("mistake: resume of a directory that is no run"):
        told = world.oxbow("resume", "published")
        assert told.code not in (0, 1, 109), f"exit code {told.code}: {told.text}"
        one_line(told)
        says(told.text, "published", "run")
    with findings.see("mistake: a tracker that refuses is one line"):
        world.environment["WANDB_API_KEY"] = "short"
        code, text = world.run_python("-m", "oxbow.follow.command", world.folder / "runs/flux", "--to", "wandb", "--once")
        del world.environment["WANDB_API_KEY"]
        assert code not in (0, 1) and "Traceback" not in text, f"exit code {code}: {text[-800:]}"
        says(text, "wandb")
