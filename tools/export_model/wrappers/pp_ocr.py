# SPDX-License-Identifier: Apache-2.0
"""PP-OCRv5 (PaddleOCR 3): text detectors, a picture to a map of probabilities, and recognisers of one line, to characters.

The modules and the names of the weights are transformers'. Batch norms, and the branches of a PP-LCNetV3 layer that run
beside each other, are folded into one convolution: nodes that read weights alone, which oxbow runs once.
"""
import contextlib

import torch
import torch.nn.functional as F
import transformers
from transformers.initialization import no_init_weights
from transformers.models.hgnet_v2 import modeling_hgnet_v2 as hgnet
from transformers.models.pp_lcnet_v3 import modeling_pp_lcnet_v3 as lcnet
from transformers.models.pp_ocrv5_mobile_det import modeling_pp_ocrv5_mobile_det as mobile_det
from transformers.models.pp_ocrv5_mobile_rec import modeling_pp_ocrv5_mobile_rec as mobile_rec
from transformers.models.pp_ocrv5_server_det import modeling_pp_ocrv5_server_det as server_det
from transformers.models.pp_ocrv5_server_rec import modeling_pp_ocrv5_server_rec as server_rec

from export_model.published import INTRACLASS_BLOCK
from export_model.wrapper import Network, Symbol, replaced

LINE_HEIGHT = 48  # Pixels of a line, as a recogniser takes it.

# The keys of a backbone_config that make the network, by its model_type.
BACKBONE_KEYS = {
    "pp_lcnet_v3": ("scale", "block_configs", "stem_channels", "stem_stride", "reduction", "divisor", "hidden_act",
                    "conv_symmetric_num"),
    "hgnet_v2": ("hidden_act", "stem_channels", "stem_strides", "stage_in_channels", "stage_mid_channels",
                 "stage_out_channels", "stage_num_blocks", "stage_downsample", "stage_downsample_strides",
                 "stage_light_block", "stage_kernel_size", "stage_numb_of_layers", "use_learnable_affine_block")}


class PPOCR(torch.nn.Module):
    """A network of transformers; `keys` are those of its config.json that make it."""
    config_class = network_class = None
    backbone_keys = ("model_type",)  # Besides those of its type.

    def __init__(self, **keys):
        super().__init__()
        config = self.config_class(**keys)
        with no_init_weights():  # They need not be drawn, and weights that are shapes alone cannot be.
            self.network = self.network_class(config)
        for module in self.network.modules():
            if isinstance(module, (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)):
                module.num_batches_tracked = None  # Checkpoints have none.
        self.config = {key: getattr(config, key) for key in keys} | {"backbone_config": self.made_of(config.backbone_config)}

    @classmethod
    def made_of(cls, backbone):
        return {key: getattr(backbone, key) for key in (*cls.backbone_keys, *BACKBONE_KEYS[backbone.model_type])}

    @classmethod
    def nested_defaults(cls):
        """The meaning of a config without a backbone_config, and one that leaves keys out, by `backbone_config.KEY`."""
        backbone = cls.config_class().backbone_config
        inside = cls.made_of(type(backbone)())
        return {"backbone_config": cls.made_of(backbone)} | {f"backbone_config.{key}": value for key, value in inside.items()}

    def forward(self, pixels):
        return self.network(pixel_values=pixels).last_hidden_state


class PPOCRV5MobileDetForObjectDetection(PPOCR):
    config_class, network_class = transformers.PPOCRV5MobileDetConfig, transformers.PPOCRV5MobileDetForObjectDetection
    backbone_keys = ("model_type", "out_features")

    def __init__(self, backbone_config=None, reduction=4, neck_out_channels=96, interpolate_mode="nearest",
                 kernel_list=(3, 2, 2), layer_list_out_channels=(12, 18, 42, 360)):
        super().__init__(
            backbone_config=backbone_config, reduction=reduction, neck_out_channels=neck_out_channels,
            interpolate_mode=interpolate_mode, kernel_list=list(kernel_list),
            layer_list_out_channels=list(layer_list_out_channels))


class PPOCRV5ServerDetForObjectDetection(PPOCR):
    config_class, network_class = transformers.PPOCRV5ServerDetConfig, transformers.PPOCRV5ServerDetForObjectDetection
    backbone_keys = ("model_type", "out_features")

    # transformers has no default for these three keys: a config that leaves them out builds nothing.
    def __init__(self, intraclass_block_config, scale_factor_list, kernel_list, backbone_config=None,
                 interpolate_mode="nearest", neck_out_channels=256, reduce_factor=2, intraclass_block_number=4,
                 scale_factor=2, hidden_act="relu"):
        super().__init__(
            backbone_config=backbone_config, interpolate_mode=interpolate_mode, neck_out_channels=neck_out_channels,
            reduce_factor=reduce_factor, intraclass_block_number=intraclass_block_number,
            intraclass_block_config=intraclass_block_config, scale_factor=scale_factor,
            scale_factor_list=list(scale_factor_list), hidden_act=hidden_act, kernel_list=list(kernel_list))


class Recogniser(PPOCR):
    def __init__(self, backbone_config=None, hidden_act="silu", hidden_size=120, mlp_ratio=2.0, depth=2,
                 head_out_channels=18385, conv_kernel_size=(1, 3), qkv_bias=True, num_attention_heads=8,
                 layer_norm_eps=1e-6):
        super().__init__(
            backbone_config=backbone_config, hidden_act=hidden_act, hidden_size=hidden_size, mlp_ratio=mlp_ratio,
            depth=depth, head_out_channels=head_out_channels, conv_kernel_size=list(conv_kernel_size),
            qkv_bias=qkv_bias, num_attention_heads=num_attention_heads, layer_norm_eps=layer_norm_eps)


class PPOCRV5MobileRecForTextRecognition(Recogniser):
    config_class, network_class = transformers.PPOCRV5MobileRecConfig, transformers.PPOCRV5MobileRecForTextRecognition


class PPOCRV5ServerRecForTextRecognition(Recogniser):
    config_class, network_class = transformers.PPOCRV5ServerRecConfig, transformers.PPOCRV5ServerRecForTextRecognition


def folded(convolution, norm):
    """(weight, bias) of a convolution and the batch norm behind it."""
    scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    channels = 1 if isinstance(convolution, torch.nn.ConvTranspose2d) else 0
    weight = convolution.weight * scale.reshape([-1 if d == channels else 1 for d in range(convolution.weight.dim())])
    bias = norm.bias - norm.running_mean * scale
    return weight, bias if convolution.bias is None else bias + convolution.bias * scale


def convolve(convolution, x, weight, bias):
    if isinstance(convolution, torch.nn.ConvTranspose2d):
        return F.conv_transpose2d(x, weight, bias, convolution.stride, convolution.padding, convolution.output_padding,
                                  convolution.groups, convolution.dilation)
    call = F.conv1d if isinstance(convolution, torch.nn.Conv1d) else F.conv2d
    return call(x, weight, bias, convolution.stride, convolution.padding, convolution.dilation, convolution.groups)


def layer_forward(norm, after):
    """The forward of a layer: a convolution, the batch norm `norm`, and the modules that `after` names."""
    def forward(self, x):
        x = convolve(self.convolution, x, *folded(self.convolution, getattr(self, norm)))
        for name in after:
            x = getattr(self, name)(x)
        return x
    return forward


def branches_forward(self, x):
    """PP-LCNetV3's layer: the sum of convolutions of two sizes and a batch norm, scaled and shifted."""
    main = self.conv_symmetric[0].convolution
    size = main.kernel_size[0]
    weights, biases = map(list, zip(*(folded(layer.convolution, layer.normalization) for layer in self.conv_symmetric)))
    border = [size // 2] * 4
    if self.conv_small_symmetric is not None:
        weight, bias = folded(self.conv_small_symmetric.convolution, self.conv_small_symmetric.normalization)
        weights.append(F.pad(weight, border))
        biases.append(bias)
    if self.identity is not None:
        scale = self.identity.weight * torch.rsqrt(self.identity.running_var + self.identity.eps)
        weight = scale[:, None] if main.groups > 1 else scale[:, None] * torch.eye(len(scale))
        weights.append(F.pad(weight[:, :, None, None], border))
        biases.append(self.identity.bias - self.identity.running_mean * scale)
    weight, bias = sum(weights[1:], weights[0]), sum(biases[1:], biases[0])
    x = convolve(main, x, weight * self.lab.scale, bias * self.lab.scale + self.lab.bias)
    return self.act(x) if self.stride != 2 else x


FORWARDS = {
    lcnet.PPLCNetV3ConvLayer: layer_forward("normalization", ["activation"]),
    lcnet.PPLCNetV3LearnableRepLayer: branches_forward,
    hgnet.HGNetV2ConvLayer: layer_forward("normalization", ["activation", "lab"]),
    mobile_det.PPOCRV5MobileDetConvBatchnormLayer: layer_forward("norm", ["act_fn"]),
    server_det.PPOCRV5ServerDetConvBatchnormLayer: layer_forward("norm", ["act_fn"]),
    mobile_rec.PPOCRV5MobileRecConvLayer: layer_forward("normalization", ["activation"]),
    server_rec.PPOCRV5ServerRecConvLayer: layer_forward("normalization", ["activation"])}


class PPOCRNetwork(Network):
    forwards = FORWARDS

    @classmethod
    @contextlib.contextmanager
    def traceable(cls, transformer):
        with contextlib.ExitStack() as stack:
            for owner, forward in cls.forwards.items():
                stack.enter_context(replaced(owner, "forward", forward))
            yield

    @classmethod
    def published_name(cls, name):
        return name.removeprefix("network.")

    def forward(self, pixels):
        return (self.transformer(pixels),)


class Detector(PPOCRNetwork):
    """Pixels of any size in multiples of 32 to how probable text is at each of them."""
    outputs = ("map",)

    @classmethod
    def symbols(cls, config):
        return {"B": Symbol(), "H": Symbol(min=32, multiple=32), "W": Symbol(min=32, multiple=32)}

    @classmethod
    def inputs(cls, config):
        return {"pixels": ["B", 3, "H", "W"]}


class LineRecogniser(PPOCRNetwork):
    """A line of any width to probabilities of the characters in each eighth of its columns; the first stands for none."""
    outputs = ("probabilities",)

    @classmethod
    def symbols(cls, config):
        return {"B": Symbol(), "C": Symbol(min=16)}

    @classmethod
    def inputs(cls, config):
        return {"pixels": ["B", 3, LINE_HEIGHT, "C"]}


TINY_LCNET = dict(
    model_type="pp_lcnet_v3", scale=0.5, divisor=4, stem_channels=8, conv_symmetric_num=2, reduction=2,
    out_features=["stage2", "stage3", "stage4", "stage5"])


def lcnet_stages(*strides):
    """Five small stages: one of them with two sizes of kernels, one with squeeze and excitation."""
    first, second, third, fourth = strides
    return [[[3, 8, 8, 1, False]], [[3, 8, 16, first, False], [3, 16, 16, 1, False]], [[3, 16, 16, second, False]],
            [[3, 16, 24, third, False], [5, 24, 24, 1, False]], [[5, 24, 32, fourth, True], [5, 32, 32, fourth if fourth != 2 else 1, False]]]


TINY_HGNET = dict(
    model_type="hgnet_v2", stem_channels=[3, 4, 6], stage_in_channels=[6, 8, 10, 12], stage_mid_channels=[4, 5, 6, 7],
    stage_out_channels=[8, 10, 12, 16], stage_num_blocks=[1, 1, 2, 1], stage_numb_of_layers=[2, 1, 2, 1],
    out_features=["stage1", "stage2", "stage3", "stage4"])
TINY_LINE = dict(hidden_size=12, num_attention_heads=3, depth=2, head_out_channels=21)


class MobileDetector(Detector):
    transformer_class = PPOCRV5MobileDetForObjectDetection
    tiny = {"pp_ocrv5_mobile_det_tiny": dict(
        backbone_config=TINY_LCNET | dict(block_configs=lcnet_stages(2, 2, 2, 2)), neck_out_channels=16,
        layer_list_out_channels=[4, 6, 8, 12])}


class ServerDetector(Detector):
    transformer_class = PPOCRV5ServerDetForObjectDetection
    tiny = {"pp_ocrv5_server_det_tiny": dict(
        backbone_config=TINY_HGNET, neck_out_channels=16, reduce_factor=2, intraclass_block_config=INTRACLASS_BLOCK,
        scale_factor_list=[1, 2, 4, 8], kernel_list=[3, 2, 2])}


class MobileRecogniser(LineRecogniser):
    transformer_class = PPOCRV5MobileRecForTextRecognition
    tiny = {"pp_ocrv5_mobile_rec_tiny": TINY_LINE | dict(
        backbone_config=TINY_LCNET | dict(block_configs=lcnet_stages(1, [2, 1], [1, 2], [2, 1])))}


class ServerRecogniser(LineRecogniser):
    transformer_class = PPOCRV5ServerRecForTextRecognition
    tiny = {"pp_ocrv5_server_rec_tiny": TINY_LINE | dict(
        backbone_config=TINY_HGNET | dict(
            stem_strides=[2, 1, 1, 1, 1], stage_downsample=[True] * 4,
            stage_downsample_strides=[[2, 1], [1, 2], [2, 1], [2, 1]], use_learnable_affine_block=True))}
