# SPDX-License-Identifier: Apache-2.0
"""ImageReward (arXiv:2304.05977): BLIP's image encoder, BERT that looks at the image, and a head on its first token.

The modules are transformers', the names of the weights those of ImageReward.pt. Published: ViT-L/16 at 224 pixels,
BERT-base, 30,522 words and two tokens of BLIP's own.
"""
import re

import torch
from transformers import BlipTextConfig, BlipVisionConfig, BlipVisionModel
from transformers.initialization import no_init_weights
from transformers.models.blip.modeling_blip_text import BlipTextModel

from export_model.wrapper import Network, Symbol

LENGTH = 35  # Tokens of a prompt, with padding.

# Names of transformers' modules and of BLIP's own, which the checkpoint has.
NAMES = [
    (r"^vision\.embeddings\.class_embedding$", "blip.visual_encoder.cls_token"),
    (r"^vision\.embeddings\.position_embedding$", "blip.visual_encoder.pos_embed"),
    (r"^vision\.embeddings\.patch_embedding\.", "blip.visual_encoder.patch_embed.proj."),
    (r"^vision\.encoder\.layers\.(\d+)\.layer_norm", r"blip.visual_encoder.blocks.\1.norm"),
    (r"^vision\.encoder\.layers\.(\d+)\.self_attn\.projection\.", r"blip.visual_encoder.blocks.\1.attn.proj."),
    (r"^vision\.encoder\.layers\.(\d+)\.self_attn\.", r"blip.visual_encoder.blocks.\1.attn."),
    (r"^vision\.encoder\.layers\.(\d+)\.mlp\.", r"blip.visual_encoder.blocks.\1.mlp."),
    (r"^vision\.post_layernorm\.", "blip.visual_encoder.norm."),
    (r"^text\.", "blip.text_encoder."),
]


class ImageReward(torch.nn.Module):
    """The network before the published mean and deviation. Its arguments are the keys of a config.json."""

    def __init__(self, image_size=224, patch_size=16, vision_width=1024, vision_layers=24, vision_heads=16,
                 vocab_size=30524, text_width=768, text_layers=12, text_heads=12, text_mlp=3072, text_positions=512,
                 head=(1024, 128, 64, 16)):
        super().__init__()
        with no_init_weights():  # They need not be drawn, and weights that are shapes alone cannot be.
            self.vision = BlipVisionModel(BlipVisionConfig(
                image_size=image_size, patch_size=patch_size, hidden_size=vision_width, intermediate_size=4 * vision_width,
                num_hidden_layers=vision_layers, num_attention_heads=vision_heads, hidden_act="gelu", layer_norm_eps=1e-6))
            self.text = BlipTextModel(BlipTextConfig(
                vocab_size=vocab_size, hidden_size=text_width, encoder_hidden_size=vision_width, intermediate_size=text_mlp,
                num_hidden_layers=text_layers, num_attention_heads=text_heads, max_position_embeddings=text_positions,
                hidden_act="gelu", layer_norm_eps=1e-12, is_decoder=True), add_pooling_layer=False)  # A decoder sees images.
        self.mlp = torch.nn.Module()
        widths = [text_width, *head, 1]
        layers = [torch.nn.Linear(a, b) for a, b in zip(widths, widths[1:])]
        # Dropout follows the first three layers and has no weights.
        numbers = [index + min(index, 3) for index in range(len(layers))]
        self.mlp.layers = torch.nn.ModuleDict({str(number): layer for number, layer in zip(numbers, layers)})

    def forward(self, pixels, ids, mask):
        seen = self.vision(pixel_values=pixels).last_hidden_state
        read = self.text(input_ids=ids, attention_mask=mask, encoder_hidden_states=seen).last_hidden_state
        value = read[:, 0]
        for layer in self.mlp.layers.values():
            value = layer(value)
        return value[:, 0]


class ImageRewardNetwork(Network):
    transformer_class = ImageReward
    outputs = ("value",)
    tiny = {"image_reward_tiny": dict(
        image_size=32, patch_size=8, vision_width=16, vision_layers=2, vision_heads=2, vocab_size=40, text_width=12,
        text_layers=2, text_heads=3, text_mlp=20, text_positions=40, head=(9, 8, 7, 6))}

    @classmethod
    def symbols(cls, config):
        return {"B": Symbol()}

    @classmethod
    def inputs(cls, config):
        return {"pixels": ["B", 3, config["image_size"], config["image_size"]], "ids": ["B", LENGTH], "mask": ["B", LENGTH]}

    @classmethod
    def example(cls, name, shape, generator):
        if name == "ids":
            return torch.randint(0, 40, shape, generator=generator)
        return super().example(name, shape, generator)

    @classmethod
    def published_name(cls, name):
        for pattern, published in NAMES:
            name, found = re.subn(pattern, published, name)
            if found:
                return name
        return name

    def forward(self, pixels, ids, mask):
        return (self.transformer(pixels, ids, mask),)
