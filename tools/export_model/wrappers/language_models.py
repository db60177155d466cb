# SPDX-License-Identifier: Apache-2.0
"""Language models that read prompts: Qwen2.5-VL's text part (arXiv:2502.13923), Qwen3 (arXiv:2505.09388), Mistral Small 3.

A text has no picture, so the three positions of Qwen2.5-VL's rotary embedding are one. Layers behind those that a pipeline
takes are not there. Names of the weights are those of transformers' text model, such as `layers.0.mlp.up_proj.weight`.
"""
import torch
from torch.nn import functional as F

from export_model.wrappers.text_encoders import TextEncoder


def rotated(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class Norm(torch.nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Attention(torch.nn.Module):
    def __init__(self, hidden, heads, pairs, head_dim, bias, norm_eps):
        super().__init__()
        self.head_dim, self.repeats = head_dim, heads // pairs
        self.q_proj = torch.nn.Linear(hidden, heads * head_dim, bias=bias)
        self.k_proj = torch.nn.Linear(hidden, pairs * head_dim, bias=bias)
        self.v_proj = torch.nn.Linear(hidden, pairs * head_dim, bias=bias)
        self.o_proj = torch.nn.Linear(heads * head_dim, hidden, bias=False)
        self.q_norm, self.k_norm = (Norm(head_dim, norm_eps) if norm_eps else torch.nn.Identity() for _ in range(2))

    def forward(self, x, cos, sin, seen):
        q, k, v = (y.unflatten(-1, (-1, self.head_dim)) for y in (self.q_proj(x), self.k_proj(x), self.v_proj(x)))
        q, k, v = (y.transpose(1, 2) for y in (self.q_norm(q), self.k_norm(k), v))
        k, v = (y[:, :, None].expand(-1, -1, self.repeats, -1, -1).flatten(1, 2) for y in (rotated(k, cos, sin), v))
        return self.o_proj(F.scaled_dot_product_attention(rotated(q, cos, sin), k, v, attn_mask=seen).transpose(1, 2).flatten(2))


class Mlp(torch.nn.Module):
    def __init__(self, hidden, intermediate):
        super().__init__()
        self.gate_proj, self.up_proj = (torch.nn.Linear(hidden, intermediate, bias=False) for _ in range(2))
        self.down_proj = torch.nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(torch.nn.Module):
    def __init__(self, hidden, intermediate, eps, *attention):
        super().__init__()
        self.self_attn, self.mlp = Attention(hidden, *attention), Mlp(hidden, intermediate)
        self.input_layernorm, self.post_attention_layernorm = Norm(hidden, eps), Norm(hidden, eps)

    def forward(self, x, cos, sin, seen):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, seen)
        return x + self.mlp(self.post_attention_layernorm(x))


class LanguageModel(torch.nn.Module):
    """Hidden states after the layers `taken`, side by side; after the last of all those of the norm, where `normed`."""

    taken, normed, bias, head_norms = (), False, False, False

    @staticmethod
    def read_config(config):
        """The keys of the text model, with those of its positions on top, whichever version of transformers wrote them."""
        text = config.get("text_config") or config
        rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
        kind = rope.get("rope_type") or rope.get("type") or "default"
        return text | {key: rope[key] for key in ("rope_theta",) if key in rope} | {"rope_type": "default" if kind == "mrope" else kind}

    def build(self, vocab_size, hidden_size, intermediate_size, num_attention_heads, num_key_value_heads, head_dim, rms_norm_eps,
              rope_theta, taken):
        self.took, self.head_dim, self.theta = taken, head_dim, rope_theta
        self.embed_tokens = torch.nn.Embedding(vocab_size, hidden_size)
        self.layers = torch.nn.ModuleList(
            Layer(hidden_size, intermediate_size, rms_norm_eps, num_attention_heads, num_key_value_heads, head_dim, self.bias,
                  rms_norm_eps if self.head_norms else 0) for _ in range(max(taken)))
        if self.normed:
            self.norm = Norm(hidden_size, rms_norm_eps)

    def forward(self, ids, mask):
        position = torch.arange(ids.shape[1])
        angle = position[:, None].float() * (1 / self.theta ** (torch.arange(0, self.head_dim, 2).float() / self.head_dim))
        cos, sin = (torch.cat([part, part], dim=-1) for part in (angle.cos(), angle.sin()))
        seen = (position[None, :] <= position[:, None]) & (mask > 0)[:, None, None, :]
        x, states = self.embed_tokens(ids).float(), []
        for count, layer in enumerate(self.layers, 1):
            x = layer(x, cos, sin, seen)
            if count in self.took:
                states.append(x)
        if self.normed:
            states = [self.norm(x)]
        return torch.cat(states, dim=-1) if len(states) > 1 else states[0]


def only(**values):
    """ValueError unless each value is the one that is written here."""
    for key, (value, supported) in values.items():
        if value != supported:
            raise ValueError(f"{key} {value!r}: only {supported!r} is written")


class Qwen2_5_VLForConditionalGeneration(LanguageModel):
    """Qwen-Image's: the last hidden states (pipeline_qwenimage.py, _get_qwen_prompt_embeds)."""

    normed, bias = True, True

    def __init__(self, vocab_size=152064, hidden_size=8192, intermediate_size=29568, num_hidden_layers=80, num_attention_heads=64,
                 num_key_value_heads=8, rms_norm_eps=1e-5, rope_theta=1e6, hidden_act="silu", use_sliding_window=False,
                 rope_type="default"):
        super().__init__()
        only(hidden_act=(hidden_act, "silu"), use_sliding_window=(use_sliding_window, False), rope_type=(rope_type, "default"))
        self.build(vocab_size, hidden_size, intermediate_size, num_attention_heads, num_key_value_heads,
                   hidden_size // num_attention_heads, rms_norm_eps, rope_theta, (num_hidden_layers,))


class Qwen3(LanguageModel):
    head_norms = True

    def __init__(self, vocab_size=151936, hidden_size=4096, intermediate_size=22016, num_hidden_layers=32, num_attention_heads=32,
                 num_key_value_heads=32, head_dim=128, rms_norm_eps=1e-6, rope_theta=10000.0, hidden_act="silu", attention_bias=False,
                 use_sliding_window=False, rope_type="default"):
        super().__init__()
        only(hidden_act=(hidden_act, "silu"), attention_bias=(attention_bias, False), use_sliding_window=(use_sliding_window, False),
             rope_type=(rope_type, "default"))
        self.build(vocab_size, hidden_size, intermediate_size, num_attention_heads, num_key_value_heads, head_dim, rms_norm_eps,
                   rope_theta, self.taken or (num_hidden_layers - 1,))


class Qwen3Model(Qwen3):
    """Z-Image's: the hidden states before the last layer (pipeline_z_image.py, _encode_prompt)."""


class Qwen3ForCausalLM(Qwen3):
    """FLUX.2 klein's: three layers side by side (pipeline_flux2_klein.py, _get_qwen3_prompt_embeds)."""

    taken = (9, 18, 27)


class Mistral3ForConditionalGeneration(LanguageModel):
    """FLUX.2 dev's: three layers side by side (pipeline_flux2.py, _get_mistral_3_small_prompt_embeds)."""

    taken = (10, 20, 30)

    def __init__(self, vocab_size=32000, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
                 num_key_value_heads=8, head_dim=None, rms_norm_eps=1e-6, rope_theta=10000.0, hidden_act="silu",
                 rope_type="default"):
        super().__init__()
        only(hidden_act=(hidden_act, "silu"), rope_type=(rope_type, "default"))
        self.build(vocab_size, hidden_size, intermediate_size, num_attention_heads, num_key_value_heads,
                   head_dim or hidden_size // num_attention_heads, rms_norm_eps, rope_theta, self.taken)


class PromptReader(TextEncoder):
    masked = True
    outputs = ("tokens",)

    def forward(self, ids, mask):
        return (self.transformer(ids, mask),)


TINY = dict(vocab_size=40, hidden_size=16, intermediate_size=20, num_attention_heads=4, num_key_value_heads=2)


class QwenImageReader(PromptReader):
    transformer_class = Qwen2_5_VLForConditionalGeneration
    tiny = {"qwen2_5_vl_tiny": TINY | dict(num_hidden_layers=3)}


class ZImageReader(PromptReader):
    transformer_class = Qwen3Model
    tiny = {"qwen3_tiny": TINY | dict(num_hidden_layers=3, head_dim=6)}


class Flux2KleinReader(PromptReader):
    transformer_class = Qwen3ForCausalLM
    tiny = {"qwen3_klein_tiny": TINY | dict(num_hidden_layers=28, head_dim=4)}


class Flux2Reader(PromptReader):
    transformer_class = Mistral3ForConditionalGeneration
    tiny = {"mistral3_tiny": TINY | dict(num_hidden_layers=31, head_dim=4)}
