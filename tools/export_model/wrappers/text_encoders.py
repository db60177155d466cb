# SPDX-License-Identifier: Apache-2.0
"""Text encoders of transformers: from ids of tokens to hidden states, for any number of tokens.

The module is transformers' own. Its constructor takes the keys of config.json that it computes with. The sum of blocks
stays float32 in every type of weights: what comes out of a table is cast before anything is added.
"""
import contextlib

import torch
import torch.nn.functional as F
import transformers
from transformers.activations import NewGELUActivation
from transformers.initialization import no_init_weights
from transformers.models.clip import modeling_clip

from export_model.wrapper import Network, Symbol, replaced

ROWS, TOKENS = "B", "S"
EXAMPLE_IDS = 40  # Words of the smallest vocabulary.


class TextEncoder(Network):
    """Base: ids [B, S] int64, and if `masked` mask [B, S], 1 for tokens that are attended to."""

    masked = False

    @classmethod
    def longest(cls, config):
        """The largest number of tokens; None without a limit."""
        return None

    @classmethod
    def symbols(cls, config):
        return {ROWS: Symbol(), TOKENS: Symbol(max=cls.longest(config))}

    @classmethod
    def inputs(cls, config):
        return {name: [ROWS, TOKENS] for name in (("ids", "mask") if cls.masked else ("ids",))}

    @classmethod
    def example(cls, name, shape, generator):
        if name == "ids":
            return torch.randint(0, EXAMPLE_IDS, shape, generator=generator)
        return super().example(name, shape, generator)


class T5EncoderModel(torch.nn.Module):
    """T5 v1.1 (arXiv:1910.10683, arXiv:2002.05202)."""

    config_class, model_class = transformers.T5Config, transformers.T5EncoderModel
    _keep_in_fp32_modules = ["wo"]

    def __init__(self, vocab_size=32128, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8,
                 relative_attention_num_buckets=32, relative_attention_max_distance=128, layer_norm_epsilon=1e-6,
                 feed_forward_proj="relu", model_type="t5"):
        super().__init__()
        sizes = {key: value for key, value in locals().items() if key not in ("self", "__class__", "model_type")}
        if model_type != self.config_class.model_type:
            raise ValueError(f"model_type is {model_type}: {type(self).__name__} is {self.config_class.model_type}")
        with no_init_weights():
            model = self.model_class(self.config_class(**sizes))
        self.shared, self.encoder = model.shared, model.encoder
        del self.encoder.embed_tokens  # It is `shared`.

    def forward(self, ids, shown=None):
        """shown [B, 1, S, S]: what each token attends to; None: all, padding included."""
        return self.encoder(inputs_embeds=self.shared(ids).to(torch.float32), attention_mask=shown).last_hidden_state


class UMT5EncoderModel(T5EncoderModel):
    """UMT5 (arXiv:2304.09151): T5 v1.1 with a table of distances for each block."""

    config_class, model_class = transformers.UMT5Config, transformers.UMT5EncoderModel

    def __init__(self, vocab_size=250112, d_model=512, d_kv=64, d_ff=1024, num_layers=8, num_heads=6,
                 relative_attention_num_buckets=32, relative_attention_max_distance=128, layer_norm_epsilon=1e-6,
                 feed_forward_proj="gated-gelu", model_type="umt5"):
        super().__init__(vocab_size, d_model, d_kv, d_ff, num_layers, num_heads, relative_attention_num_buckets,
                         relative_attention_max_distance, layer_norm_epsilon, feed_forward_proj, model_type)


T5_TINY = dict(vocab_size=40, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=3, feed_forward_proj="gated-gelu")


class T5(TextEncoder):
    """SD3, FLUX.1 and LTX-Video let it attend to the padding."""
    transformer_class = T5EncoderModel
    outputs = ("hidden",)
    tiny = {
        "t5_tiny": T5_TINY,
        "t5_near": T5_TINY | dict(relative_attention_num_buckets=8, relative_attention_max_distance=6, num_layers=1),
        "t5_eps": T5_TINY | dict(layer_norm_epsilon=0.1, d_kv=5, num_heads=4, num_layers=3)}

    @classmethod
    @contextlib.contextmanager
    def traceable(cls, encoder):
        with replaced(NewGELUActivation, "forward", lambda self, x: F.gelu(x, approximate="tanh")):
            yield

    def forward(self, ids):
        return (self.transformer(ids),)


class Umt5(T5):
    """Wan hides the padding from it."""
    transformer_class = UMT5EncoderModel
    masked = True
    tiny = {"umt5_tiny": T5_TINY, "umt5_near": T5_TINY | dict(relative_attention_num_buckets=8, num_heads=2, num_layers=3)}

    def forward(self, ids, mask):
        return (self.transformer(ids, mask[:, None, None].gt(0).expand(-1, 1, ids.shape[1], -1)),)


class CLIPTextModel(torch.nn.Module):
    """CLIP's text tower (arXiv:2103.00020): states before the last block, behind it and its norm, and at the text's end."""

    def __init__(self, vocab_size=49408, hidden_size=512, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=8,
                 max_position_embeddings=77, hidden_act="quick_gelu", layer_norm_eps=1e-5, eos_token_id=49407):
        super().__init__()
        sizes = {key: value for key, value in locals().items() if key not in ("self", "__class__")}
        with no_init_weights():
            self.text_model = transformers.CLIPTextModel(transformers.CLIPTextConfig(bos_token_id=None, pad_token_id=None, **sizes))

    def forward(self, ids):
        states = self.text_model(input_ids=ids, output_hidden_states=True)
        return states.hidden_states[-2], states.last_hidden_state, states.pooler_output


class CLIPTextModelWithProjection(CLIPTextModel):
    def __init__(self, vocab_size=49408, hidden_size=512, intermediate_size=2048, projection_dim=512, num_hidden_layers=12,
                 num_attention_heads=8, max_position_embeddings=77, hidden_act="quick_gelu", layer_norm_eps=1e-5,
                 eos_token_id=49407):
        super().__init__(vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads,
                         max_position_embeddings, hidden_act, layer_norm_eps, eos_token_id)
        self.text_projection = torch.nn.Linear(hidden_size, projection_dim, bias=False)

    def forward(self, ids):
        penultimate, last, pooled = super().forward(ids)
        return penultimate, last, self.text_projection(pooled)


def causal_attention(module, query, key, value, attention_mask, scaling, **_):
    """As transformers', whatever the number of tokens: theirs asks whether there is more than one."""
    attended = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)
    return attended.transpose(1, 2).contiguous(), None


CLIP_TINY = dict(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
                 max_position_embeddings=20, eos_token_id=39)


class ClipText(TextEncoder):
    transformer_class = CLIPTextModel
    outputs = ("penultimate", "last", "pooled")
    tiny = {
        "clip_tiny": CLIP_TINY,
        "clip_legacy_end": CLIP_TINY | dict(eos_token_id=2, hidden_act="gelu", num_hidden_layers=1, layer_norm_eps=0.1)}

    @classmethod
    def longest(cls, config):
        return config["max_position_embeddings"]

    @classmethod
    def example(cls, name, shape, generator):
        """Words, then the largest id, once or up to the last place."""
        ids = torch.randint(3, EXAMPLE_IDS - 1, shape, generator=generator)
        ends = torch.randint(0, shape[1], shape[:1], generator=generator)
        place = torch.arange(shape[1])[None]
        ids[place == ends[:, None]] = EXAMPLE_IDS - 1
        ids[1::2][place.expand_as(ids[1::2]) > ends[1::2, None]] = EXAMPLE_IDS - 1
        return ids

    @classmethod
    @contextlib.contextmanager
    def traceable(cls, encoder):
        tables = encoder.text_model.embeddings
        embedded = tables.forward
        with replaced(tables, "forward", lambda **given: embedded(**given).to(torch.float32)), \
                replaced(modeling_clip, "create_causal_mask", lambda **given: None), \
                replaced(modeling_clip.ALL_ATTENTION_FUNCTIONS, "get_interface", lambda *_: causal_attention):
            yield

    def forward(self, ids):
        return self.transformer(ids)


class ClipTextProjected(ClipText):
    transformer_class = CLIPTextModelWithProjection
    tiny = {
        "clip_projected": CLIP_TINY | dict(projection_dim=12),
        "clip_projected_gelu": CLIP_TINY | dict(
            projection_dim=20, hidden_act="gelu", num_hidden_layers=3, num_attention_heads=4, eos_token_id=2)}
