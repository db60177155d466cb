#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the graphs of small SD3 transformers that unit tests run: tests/testing/graphs, and those of models/.

    tools/make_test_graphs.py [--out DIR]     PYTHONPATH has tools; see tools/export_model/README.md for what it needs
"""
import argparse
import json
import pathlib

import torch
from export_model.__main__ import export
from export_model.wrappers import WRAPPERS

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHIPPED = ("digits", "digits_sparse", "plates")
TINY = dict(sample_size=4, patch_size=2, in_channels=1, out_channels=1, num_layers=2, num_attention_heads=2,
            attention_head_dim=4, joint_attention_dim=8, caption_projection_dim=8, pooled_projection_dim=8,
            pos_embed_max_size=2)
SMALL = dict(sample_size=8, patch_size=2, in_channels=2, out_channels=2, num_attention_heads=2, attention_head_dim=8,
             joint_attention_dim=12, caption_projection_dim=16, pooled_projection_dim=10, pos_embed_max_size=4,
             qk_norm="rms_norm")
# Heads of the published size, so that attention uses the same kernels as there.
GPU_SIZED = dict(sample_size=16, patch_size=2, in_channels=4, out_channels=4, num_layers=3, num_attention_heads=4,
                 attention_head_dim=64, joint_attention_dim=96, caption_projection_dim=256, pooled_projection_dim=80,
                 pos_embed_max_size=12, dual_attention_layers=[0], qk_norm="rms_norm")
# Stable Diffusion 3.5 Medium in narrow, for the text encoders of tests/golden/text/pipeline.
NARROW_SD35M = dict(sample_size=64, patch_size=2, in_channels=4, out_channels=4, num_layers=4, num_attention_heads=2,
                    attention_head_dim=8, joint_attention_dim=36, caption_projection_dim=16, pooled_projection_dim=24,
                    pos_embed_max_size=96, dual_attention_layers=[0, 1], qk_norm="rms_norm")


def config_of(model):
    return json.loads((ROOT / f"models/{model}/transformer/config.json").read_text())


def graphs(out):
    """(path, configuration) of every graph."""
    yield out / "tiny.json.gz", TINY
    yield out / "tiny_one_block.json.gz", TINY | dict(num_layers=1)
    for blocks, dual in ((2, 0), (2, 1), (3, 1), (5, 1)):
        yield (out / f"small_{blocks}_blocks_dual_{dual}.json.gz",
               SMALL | dict(num_layers=blocks, dual_attention_layers=[dual]))
    yield out / "gpu_sized.json.gz", GPU_SIZED
    yield (out / "wide_digits.json.gz",
           config_of("digits") | dict(num_layers=6, num_attention_heads=32, caption_projection_dim=512))
    yield out / "narrow_sd35m.json.gz", NARROW_SD35M
    for model in SHIPPED:
        yield ROOT / f"models/{model}/transformer/graph.json.gz", config_of(model)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/testing/graphs")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    for path, config in graphs(args.out):
        kept = {key: value for key, value in config.items() if not key.startswith("_")}
        export(WRAPPERS["SD3Transformer2DModel"], kept, path)


if __name__ == "__main__":
    main()
