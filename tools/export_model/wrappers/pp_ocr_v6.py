# SPDX-License-Identifier: Apache-2.0
"""PP-OCRv6 (PaddleOCR 3.7): tiny, small and medium detectors and recognisers, as transformers has them.

transformers has one class for the tiny and small detectors and one for the small and medium recognisers. Checkpoints
have the branches of PP-LCNetV4 folded (paddlex/modules/base/utils/pdparams2safetensors/fusion.py); batch norms are folded
here, as in pp_ocr.py. What doubles a map's sides is a product per pixel, and the stem's pool two maxima: as fast graphs.
"""
import torch
import torch.nn.functional as F
import transformers
from transformers.models.pp_lcnet_v4 import modeling_pp_lcnet_v4 as lcnet
from transformers.models.pp_ocrv6_medium_det import modeling_pp_ocrv6_medium_det as medium_det
from transformers.models.pp_ocrv6_small_det import modeling_pp_ocrv6_small_det as small_det
from transformers.models.pp_ocrv6_small_rec import modeling_pp_ocrv6_small_rec as small_rec
from transformers.models.pp_ocrv6_tiny_rec import modeling_pp_ocrv6_tiny_rec as tiny_rec

from export_model.published import INTRACLASS_BLOCK
from export_model.wrappers.pp_ocr import (BACKBONE_KEYS, PPOCR, TINY_LINE, Detector, LineRecogniser, convolve, folded,
                                          layer_forward)

BACKBONE_KEYS["pp_lcnet_v4"] = ("block_configs", "stem_channels", "stem_strides", "stem_type", "reduction", "hidden_act",
                                "use_learnable_affine_block")


class PPOCRV6SmallDetForObjectDetection(PPOCR):
    config_class, network_class = transformers.PPOCRV6SmallDetConfig, transformers.PPOCRV6SmallDetForObjectDetection
    backbone_keys = ("model_type", "out_features")

    def __init__(self, backbone_config=None, reduction=4, neck_out_channels=96, interpolate_mode="nearest",
                 kernel_list=(3, 2, 2), layer_list_out_channels=(12, 18, 42, 360), dilated_kernel_size=7):
        super().__init__(
            backbone_config=backbone_config, reduction=reduction, neck_out_channels=neck_out_channels,
            interpolate_mode=interpolate_mode, kernel_list=list(kernel_list),
            layer_list_out_channels=list(layer_list_out_channels), dilated_kernel_size=dilated_kernel_size)


class PPOCRV6MediumDetForObjectDetection(PPOCR):
    config_class, network_class = transformers.PPOCRV6MediumDetConfig, transformers.PPOCRV6MediumDetForObjectDetection
    backbone_keys = ("model_type", "out_features")

    # transformers has no default for these three keys: a config that leaves them out builds nothing.
    def __init__(self, intraclass_block_config, scale_factor_list, kernel_list, backbone_config=None,
                 interpolate_mode="nearest", neck_out_channels=256, reduce_factor=2, intraclass_block_number=4,
                 scale_factor=2):
        super().__init__(
            backbone_config=backbone_config, interpolate_mode=interpolate_mode, neck_out_channels=neck_out_channels,
            reduce_factor=reduce_factor, intraclass_block_number=intraclass_block_number,
            intraclass_block_config=intraclass_block_config, scale_factor=scale_factor,
            scale_factor_list=list(scale_factor_list), kernel_list=list(kernel_list))


class PPOCRV6SmallRecForTextRecognition(PPOCR):
    config_class, network_class = transformers.PPOCRV6SmallRecConfig, transformers.PPOCRV6SmallRecForTextRecognition

    def __init__(self, backbone_config=None, hidden_act="silu", hidden_size=120, mlp_ratio=2.0, depth=2,
                 head_out_channels=18714, conv_kernel_size=(1, 7), qkv_bias=True, num_attention_heads=8,
                 layer_norm_eps=1e-6):
        super().__init__(
            backbone_config=backbone_config, hidden_act=hidden_act, hidden_size=hidden_size, mlp_ratio=mlp_ratio,
            depth=depth, head_out_channels=head_out_channels, conv_kernel_size=list(conv_kernel_size),
            qkv_bias=qkv_bias, num_attention_heads=num_attention_heads, layer_norm_eps=layer_norm_eps)


class PPOCRV6TinyRecForTextRecognition(PPOCR):
    config_class, network_class = transformers.PPOCRV6TinyRecConfig, transformers.PPOCRV6TinyRecForTextRecognition

    def __init__(self, backbone_config=None, hidden_size=120, head_out_channels=6625):
        super().__init__(backbone_config=backbone_config, hidden_size=hidden_size, head_out_channels=head_out_channels)


def tiny_head_forward(self, hidden_states, **_):
    """The head of the tiny recogniser: [B, C, 1, W] to probabilities [B, W, classes]."""
    hidden_states = hidden_states.squeeze(2)
    for convolution, norm in ((self.conv1, self.norm1), (self.conv2, self.norm2)):
        hidden_states = self.act_fn(convolve(convolution, hidden_states, *folded(convolution, norm)))
    return F.softmax(self.fc2(self.fc1(hidden_states.transpose(1, 2))), dim=2)


def doubled(x, weight, bias):
    """A transposed convolution of 2 x 2 pixels with stride 2: [B, C, h, w] to [B, C', 2h, 2w]. weight is [C, C', 2, 2]."""
    inputs, outputs = weight.shape[:2]
    pixels = weight.permute(1, 2, 3, 0).reshape(4 * outputs, inputs, 1, 1)
    return F.pixel_shuffle(F.conv2d(x, pixels, bias.repeat_interleave(4)), 2)


def head_layer_forward(self, x):
    weights = folded(self.convolution, self.norm)
    transposed = isinstance(self.convolution, torch.nn.ConvTranspose2d)
    return self.act_fn(doubled(x, *weights) if transposed else convolve(self.convolution, x, *weights))


def large_stem_forward(self, pixel_values):
    embedding = F.pad(self.stem1(pixel_values), (0, 1, 0, 1))
    beside = self.stem2b(F.pad(self.stem2a(embedding), (0, 1, 0, 1)))
    rows = torch.maximum(embedding[:, :, :-1], embedding[:, :, 1:])
    return self.stem4(self.stem3(torch.cat([torch.maximum(rows[..., :-1], rows[..., 1:]), beside], dim=1)))


FORWARDS = {
    torch.nn.ConvTranspose2d: lambda self, x: doubled(x, self.weight, self.bias),
    lcnet.PPLCNetV4LargeStem: large_stem_forward,
    lcnet.PPLCNetV4ConvLayer: layer_forward("normalization", ["activation", "lab"]),
    small_det.PPOCRV6SmallDetConvBatchnormLayer: head_layer_forward,
    medium_det.PPOCRV6MediumDetConvBatchnormLayer: head_layer_forward,
    small_rec.PPOCRV6SmallRecConvLayer: layer_forward("normalization", ["activation"]),
    tiny_rec.PPOCRV6TinyRecHead: tiny_head_forward}

TINY_LCNET = dict(model_type="pp_lcnet_v4", stem_channels=[3, 4, 8], reduction=2,
                  out_features=["stage1", "stage2", "stage3", "stage4"])


def lcnet_stages(stride):
    """Four small stages; the last two of them begin with the stride."""
    return [[[3, 8, 8, 1, True]], [[3, 8, 8 if stride != 2 else 12, 1 if stride != 2 else 2, False]],
            [[3, 8 if stride != 2 else 12, 16, stride, False], [3, 16, 16, 1, True]], [[3, 16, 20, stride, False]]]


class V6SmallDetector(Detector):
    forwards = FORWARDS
    transformer_class = PPOCRV6SmallDetForObjectDetection
    tiny = {"pp_ocrv6_small_det_tiny": dict(
        backbone_config=TINY_LCNET | dict(block_configs=lcnet_stages(2)), neck_out_channels=16,
        layer_list_out_channels=[8, 12, 16, 20], dilated_kernel_size=5)}


class V6MediumDetector(Detector):
    forwards = FORWARDS
    transformer_class = PPOCRV6MediumDetForObjectDetection
    tiny = {"pp_ocrv6_medium_det_tiny": dict(
        backbone_config=TINY_LCNET | dict(block_configs=lcnet_stages(2)), neck_out_channels=16, reduce_factor=2,
        intraclass_block_config=INTRACLASS_BLOCK, scale_factor_list=[1, 2, 4, 8], kernel_list=[3, 2, 2])}


class V6SmallRecogniser(LineRecogniser):
    forwards = FORWARDS
    transformer_class = PPOCRV6SmallRecForTextRecognition
    tiny = {"pp_ocrv6_small_rec_tiny": TINY_LINE | dict(
        backbone_config=TINY_LCNET | dict(block_configs=lcnet_stages([2, 1]), use_learnable_affine_block=True))}


class V6TinyRecogniser(LineRecogniser):
    forwards = FORWARDS
    transformer_class = PPOCRV6TinyRecForTextRecognition
    tiny = {"pp_ocrv6_tiny_rec_tiny": dict(
        backbone_config=TINY_LCNET | dict(block_configs=lcnet_stages([2, 1]), stem_type="small"), hidden_size=12,
        head_out_channels=21)}
