# SPDX-License-Identifier: Apache-2.0
"""Encodes prompts with a diffusers pipeline's own encode_prompt into a prompts.cache of oxbow.

    python3 tools/encode_prompts --model DIR --cache DIR --tokens N --prompts FILE [--prompts FILE ..]

For HunyuanVideoPipeline, whose text encoders oxbow does not have. N is the run's prompts.t5_length, --dtype its model.encoder_dtype. A FILE is .txt (a prompt per line) or .jsonl
({"prompt": ...}). The negative prompt, empty by default, is encoded too. What is in the cache already is left out: stop and
start it as you like. Needs the packages of tools/export_model/requirements.txt.
"""
import argparse
import json
import pathlib
import sys

TOKENS_MAX = 512


def lines_of(path):
    text = path.read_text(encoding="utf-8-sig")
    return [line for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n") if line.strip()]


def prompts_of(path):
    if path.suffix == ".jsonl":
        return [json.loads(line)["prompt"] for line in lines_of(path)]
    return lines_of(path)


def index_of(model):
    return json.loads((model / "model_index.json").read_text(encoding="utf-8"))


def load(model, dtype, device):
    import diffusers
    import torch
    diffusers.utils.logging.set_verbosity_error()
    pipe = diffusers.DiffusionPipeline.from_pretrained(
        model, torch_dtype=torch.bfloat16 if dtype == "bf16" else torch.float32, local_files_only=True, transformer=None, vae=None)
    return pipe.to(device)


def encode(arguments):
    from limit import Limit
    from pipelines import ENCODE, encoded
    from room import Room, identity
    from tqdm import tqdm
    name = index_of(arguments.model).get("_class_name")
    if name not in ENCODE:
        raise ValueError(f"{arguments.model}: encodes prompts of {', '.join(ENCODE)}, not of {name}")
    room = Room(arguments.cache, identity(arguments.model, arguments.tokens, arguments.dtype))
    texts = [arguments.negative_prompt]
    for path in arguments.prompts:
        texts += prompts_of(path)
    missing = [text for text in dict.fromkeys(texts) if not room.path(text).exists()]
    if missing:
        pipe = load(arguments.model, arguments.dtype, arguments.device)
        limit = Limit(pipe, arguments.tokens)
        with tqdm(total=len(missing), unit="prompt", desc="encode") as bar:
            for begin in range(0, len(missing), arguments.batch):
                batch = missing[begin:begin + arguments.batch]
                rows = encoded(pipe, batch, arguments.tokens)
                limit.look_at(batch)
                for text, parts in zip(batch, rows):
                    room.write(text, parts)
                bar.update(len(batch))
        for warning in limit.warnings(len(missing)):
            print(f"encode_prompts: warning: {warning}", file=sys.stderr)
    print(f"encoded {len(missing)} prompts into {room.directory}")


def main():
    parser = argparse.ArgumentParser(prog="encode_prompts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True, help="diffusers directory")
    parser.add_argument("--cache", type=pathlib.Path, required=True, help="the run's prompts.cache")
    parser.add_argument("--tokens", type=int, required=True, help="the run's prompts.t5_length")
    parser.add_argument("--prompts", type=pathlib.Path, action="append", required=True)
    parser.add_argument("--negative-prompt", default="")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32", help="the run's model.encoder_dtype")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=8)
    arguments = parser.parse_args()
    if not 1 <= arguments.tokens <= TOKENS_MAX:
        parser.error(f"--tokens must be between 1 and {TOKENS_MAX}")
    try:
        encode(arguments)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"encode_prompts: {error}")


if __name__ == "__main__":
    main()
