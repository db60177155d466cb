# SPDX-License-Identifier: Apache-2.0
"""Flow-Factory's rewards as reward.terms, reward.observed and reward.scorers.

    reward_model                    entry here
    PickScore                       scorer pickscore
    PickScore_Rank                  scorer pickscore_rank, which compares a group
    CLIP                            scorer clipscore, variant flow_factory
    OCR                             scorer ocr, variant flow_factory, engine ppocr
    ...RemotePointwiseRewardModel   kind json
    ...RemoteGroupwiseRewardModel   kind json, variant groupwise
    vllm_evaluate                   kind vlm, variant yes_no
    anything else                   none: a server elsewhere must have it
"""
from __future__ import annotations

from .settings import Setting, quoted
from .translation import Translation

TIMEOUT_ROOM, TIMEOUT = 10, 30  # Seconds of a call beyond a server's; reward.timeout_seconds of configs/defaults.yaml.
CONCURRENCY_MAX = 256
TYPES = {"bf16": "bf16", "bfloat16": "bf16", "fp16": "f16", "float16": "f16", "fp32": "f32", "float32": "f32"}
CLIPS = {"pickscore": ("pickscore", "yuvalkirstain/PickScore_v1"),
         "pickscore_rank": ("pickscore_rank", "yuvalkirstain/PickScore_v1"),
         "clip": ("clipscore", "openai/clip-vit-large-patch14")}
OF_SERVER = ("batch_size", "device", "dtype", "server_url", "timeout", "api_base_url", "vlm_model", "max_concurrent",
             "top_logprobs", "canonicalize")


class _Rewards:
    def __init__(self, t: Translation):
        self.t = t
        self.element, self.used = "", set()  # "rewards[1]", the reward that is translated, and its keys that are.
        self.entries, self.entries_of = [], None
        self.models: dict[str, str] = {}  # A reward's model, by its name.
        self.timeout, self.timeout_of = 0.0, None

    def of(self, key: str) -> Setting:
        self.used.add(key)
        return self.t.get(f"{self.element}.{key}")

    def text(self, key: str, default: str) -> str:
        s = self.of(key)
        return quoted(s.text if s.present else default)

    def begin(self, name: str, index: int = 0) -> Setting:
        """The name that Flow-Factory gives the reward, if it has one."""
        self.element, self.used = f"{name}[{index}]", set()
        return self.of("name") if self.of("name").present else self.of("reward_model")

    def all(self) -> None:
        t, terms, observed = self.t, [], []
        for index in range(t.size("rewards")):
            name = self.begin("rewards", index)
            if name.present:
                terms.append(f"{{name: {quoted(name.text)}, weight: {self.of('weight').text}}}")
                self.entry(name)
            else:
                t.refuse(name, "a reward needs a name or a reward_model")
        if not terms:
            t.refuse(self.begin("rewards"), "there is no reward to train on")
            return
        t.put("reward.terms", f"[{', '.join(terms)}]", self.begin("rewards"))
        for index in range(t.size("eval_rewards")):
            name = self.begin("eval_rewards", index)
            if name.present and name.text in self.models:
                self.measured_in_training(name.text)
            elif name.present:
                observed.append(quoted(name.text))
                self.entry(name)
        if observed:
            t.put("reward.observed", f"[{', '.join(observed)}]", self.begin("eval_rewards"))
        if self.entries:
            t.put("reward.scorers", f"[{', '.join(self.entries)}]", self.entries_of)
        if self.timeout + TIMEOUT_ROOM > TIMEOUT:
            t.put("reward.timeout_seconds", self.timeout + TIMEOUT_ROOM, self.timeout_of)

    def measured_in_training(self, name: str) -> None:
        """A reward to observe that has the name of one to train on: it is one reward here, that of the training."""
        t, model, trained = self.t, self.of("reward_model"), self.models[name]
        if model.present and model.text.lower() != trained.lower():
            t.refuse(model, f"a reward of this name trains with {trained}: give it another name")
        for path, s in t.given.items():
            if path.startswith(f"{self.element}.") and s.present and s.row.use == "!":
                t.not_needed(t.get(path), "the reward of this name in `rewards` is measured")

    def entry(self, name: Setting) -> None:
        """Adds the entry of the reward, or says that there is none."""
        model = self.of("reward_model")
        kind = model.text.lower() if model.present else ""
        self.models[name.text] = model.text if model.present else ""
        if kind in CLIPS:
            keys = self.clip(model, *CLIPS[kind])
        elif kind == "ocr":
            keys = self.ocr(model, "PaddlePaddle/PP-OCRv6_medium")
        elif kind.endswith((".remotepointwiserewardmodel", ".remotegroupwiserewardmodel")):
            keys = self.remote("pointwise" if "remotepointwise" in kind else "groupwise")
        elif kind == "vllm_evaluate":
            keys = self.judge(model)
        else:
            keys = None
            self.t.differs(name, "no reward of this build: a server at reward.endpoints must know it by this name "
                                 "(Flow-Factory's own class is served by oxbow.reward in python/)")
        if keys is not None:
            self.entries_of = self.entries_of or name
            pairs = {"name": quoted(name.text), **keys}
            self.entries.append("{" + ", ".join(f"{key}: {value}" for key, value in pairs.items()) + "}")
        self.leftovers()

    def clip(self, model: Setting, scorer: str, directory: str) -> dict:
        dtype = self.of("dtype")
        ours = TYPES.get(dtype.text.lower() if dtype.present else "bf16")
        if ours is None:
            self.t.refuse(dtype, "expected float32, bfloat16 or float16")
        self.t.differs(model, f"the `model` of its entry, {directory}, is a directory, or an id of the Hub that "
                              "`oxbow fetch` gets")
        keys = {"scorer": scorer, "model": quoted(directory), "device": self.text("device", "cuda"), "dtype": ours}
        return {**keys, "variant": "flow_factory"} if scorer == "clipscore" else keys

    def ocr(self, model: Setting, directory: str) -> dict:
        """Its networks compute in float32 there, whatever its dtype."""
        self.t.differs(model, f"the `model` of its entry, {directory}, is a directory with the networks `det` and `rec` of "
                              "PP-OCRv6 medium, as PaddleOCR 3.7 takes them (before 3.7 it took PP-OCRv5 server; docs/rewards.md). "
                              "Without `model` and `device`, `engine: tesseract` reads: do not compare their curves")
        return {"scorer": "ocr", "variant": "flow_factory", "engine": "ppocr", "model": quoted(directory),
                "device": self.text("device", "cuda")}

    def remote(self, variant: str) -> dict:
        if not self.of("server_url").present:
            self.t.refuse(self.of("server_url"), "a remote reward needs its server_url")
        keys, batch = {"kind": "json", "url": self.text("server_url", ""), "variant": variant}, self.of("batch_size")
        return {**keys, **({"batch_max": batch.text} if batch.present else {}), **self.time()}

    def judge(self, model: Setting) -> dict:
        t, most, tokens, cases = self.t, self.of("max_concurrent"), self.of("top_logprobs"), self.of("canonicalize")
        keys = {"kind": "vlm", "variant": "yes_no", "url": self.text("api_base_url", "http://localhost:8000/v1"),
                "llm": self.text("vlm_model", "Qwen3-VL")}
        if most.present:
            keys["concurrency"] = min(most.count, CONCURRENCY_MAX)
        if tokens.present and tokens.count != 20:
            t.refuse(tokens, "the 20 likeliest tokens are read")
        if cases.present and cases.flag:
            t.refuse(cases, "the tokens Yes and No alone are read")
        t.differs(model, "the picture travels as PNG here and JPEG there, and an answer without Yes and No has no score "
                         "instead of 0")
        return {**keys, **self.time()}

    def time(self) -> dict:
        timeout = self.of("timeout")
        if not timeout.present:
            return {}
        if timeout.number() > self.timeout:
            self.timeout, self.timeout_of = timeout.number(), timeout
        return {"timeout_seconds": f"{timeout.number():g}"}

    def leftovers(self) -> None:
        """Says what becomes of the keys that the entry did not take."""
        used = set(self.used)
        for s in (self.of(key) for key in OF_SERVER if key not in used):
            if s.present:
                self.t.not_needed(s, "the reward server's own business")
        secret = self.of("api_key")
        if secret.present:
            if secret.text == "EMPTY":
                self.t.not_needed(secret, "no key is sent")
            else:
                self.t.differs(secret, "write the key into a file and name that in the entry's key_file")


def translate_rewards(t: Translation) -> None:
    _Rewards(t).all()
