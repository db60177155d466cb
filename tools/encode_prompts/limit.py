# SPDX-License-Identifier: Apache-2.0
"""The effect of a limit of tokens on prompts: those that are cut, and different ones of which the same is left."""
from pipelines import encoded


class Limit:
    """Sees the ids that reach the text encoder. `tokens` of them are kept, behind what the pipeline drops in front."""

    def __init__(self, pipe, tokens):
        self.tokenizer, self.tokens = pipe.tokenizer, tokens
        dropped = getattr(pipe, "prompt_template_encode_start_idx", None)
        # Such a pipeline cuts what is encoded; others fill the ids up to their limit, which hook finds.
        self.ids_max = None if dropped is None else dropped + tokens
        self.rows, self.seen, self.same, self.cut, self.longest = [], {}, [], 0, 0
        pipe.text_encoder.register_forward_pre_hook(self.hook, with_kwargs=True)
        encoded(pipe, [""], tokens)
        self.nothing = self.take(1)[0]

    def hook(self, _, arguments, named):
        ids = named["input_ids"] if "input_ids" in named else arguments[0]
        mask = named.get("attention_mask")
        for i, row in enumerate(ids):
            kept = row if mask is None else row[mask[i].bool()]
            self.rows.append(tuple(kept.tolist()[:self.ids_max]))
        self.width = ids.shape[1]

    def take(self, count):
        """The ids of the last `count` prompts, in their order."""
        rows, self.rows = self.rows[-count:], []
        return rows

    def look_at(self, texts):
        """After they were encoded together. ValueError if nothing is left of one: the pipeline's template takes all tokens."""
        for text, ids in zip(texts, self.take(len(texts))):
            if not text.strip():
                continue
            limit = self.ids_max or self.width
            full = len(ids) == limit  # Else texts are alike because the tokenizer does not know their letters.
            if full and ids == self.nothing:
                raise ValueError(f"--tokens {self.tokens}: nothing of a prompt is left behind the pipeline's template: {text[:60]!r}")
            other = self.seen.setdefault(ids, text)
            if full and other != text:
                self.same.append((other, text))
            more = len(self.tokenizer(text)["input_ids"]) + len(self.nothing) - limit
            if more > 0:
                self.cut += 1
                self.longest = max(self.longest, self.tokens + more)

    def warnings(self, count):
        if self.cut:
            yield (f"{self.cut} of {count} prompts are longer than {self.tokens} tokens and are cut (longest {self.longest}): "
                   "raise --tokens and the run's prompts.t5_length")
        if self.same:
            one, other = self.same[0]
            yield f"{len(self.same)} prompts have the encoding of another one, because both are cut: {one[:60]!r} and {other[:60]!r}"
