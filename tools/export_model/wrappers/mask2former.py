# SPDX-License-Identifier: Apache-2.0
"""Mask2Former (arXiv:2112.01527) with a Swin backbone (arXiv:2103.14030): queries with classes and masks.

transformers' module, of one size of its input: Swin pads windows, and deformable attention samples maps, of sizes that
are numbers in the graph. Published: Swin-S and 100 queries for the 80 things of COCO; a square image is 800 pixels wide.
"""
import torch
from transformers import Mask2FormerConfig, Mask2FormerForUniversalSegmentation, SwinConfig
from transformers.initialization import no_init_weights

from export_model.wrapper import Network, Symbol

STAGES = ["stage1", "stage2", "stage3", "stage4"]


class Mask2Former(torch.nn.Module):
    """Its arguments are the keys of a config.json. `decoder_layers` counts layers, where transformers adds one.

    height, width: of the input, multiples of 32. shorter, longer: an image is resized so that its shorter side is
    `shorter`, or its longer side `longer` if it would be more.
    """

    def __init__(self, height=800, width=800, shorter=800, longer=1333, classes=80, queries=100, embed_dim=96,
                 depths=(2, 2, 18, 2), heads=(3, 6, 12, 24), window=7, feature_size=256, mask_size=256, encoder_layers=6,
                 encoder_mlp=1024, decoder_layers=9, decoder_heads=8, decoder_mlp=2048):
        super().__init__()
        swin = SwinConfig(embed_dim=embed_dim, depths=list(depths), num_heads=list(heads), window_size=window,
                          out_features=STAGES)
        config = Mask2FormerConfig(
            backbone_config=swin, feature_size=feature_size, mask_feature_size=mask_size, hidden_dim=feature_size,
            encoder_layers=encoder_layers, encoder_feedforward_dim=encoder_mlp, decoder_layers=decoder_layers + 1,
            num_attention_heads=decoder_heads, dim_feedforward=decoder_mlp, num_queries=queries, num_labels=classes)
        with no_init_weights():  # They need not be drawn, and weights that are shapes alone cannot be.
            self.detector = Mask2FormerForUniversalSegmentation(config)
        del self.detector.criterion  # Training's.
        # Nothing reads its output, and no checkpoint but transformers' own has it.
        self.detector.model.pixel_level_module.encoder.swin.layernorm = torch.nn.Identity()

    def forward(self, pixels):
        found = self.detector(pixel_values=pixels)
        return found.class_queries_logits, found.masks_queries_logits


class Mask2FormerNetwork(Network):
    transformer_class = Mask2Former
    outputs = ("classes", "masks")  # Logits [B, queries, classes + 1] and [B, queries, height / 4, width / 4].
    tiny = {"mask2former_tiny": dict(
        height=64, width=96, shorter=64, longer=107, classes=5, queries=7, embed_dim=6, depths=(2, 2, 2, 2), heads=(1, 2, 3, 6),
        window=3, feature_size=32, mask_size=12, encoder_layers=2, encoder_mlp=20, decoder_layers=3, decoder_heads=4,
        decoder_mlp=24)}

    @classmethod
    def symbols(cls, config):
        return {"B": Symbol()}

    @classmethod
    def inputs(cls, config):
        return {"pixels": ["B", 3, config["height"], config["width"]]}

    @classmethod
    def published_name(cls, name):
        return name.removeprefix("detector.")

    def forward(self, pixels):
        return self.transformer(pixels)
