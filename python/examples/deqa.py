# SPDX-License-Identifier: Apache-2.0
"""DeQA-Score, a model of picture quality, in this process.

Not run by oxbow's tests: it needs a GPU with 16 GB, `pip install torch transformers accelerate`, and downloads
zhiyuanyou/DeQA-Score-Mix3, whose own code it runs (trust_remote_code).
To ask a server of flow_grpo's reward-server instead: `quality = oxbow.reward.adapters.deqa("http://HOST:18086")`.

    oxbow-reward serve deqa.py --listen 127.0.0.1:7072
"""
from oxbow.reward import reward

MODEL = "zhiyuanyou/DeQA-Score-Mix3"


@reward("deqa", range=(0, 1), batch_max=16)
class Deqa:
    """Quality of a picture, 1..5 divided by 5."""

    def load(self):
        import torch
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(MODEL, trust_remote_code=True, attn_implementation="eager",
                                                          torch_dtype=torch.float16).cuda().requires_grad_(False)
        self.identity = MODEL

    def score(self, items):
        return self.model.score([item.pil() for item in items]) / 5
