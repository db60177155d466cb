# SPDX-License-Identifier: Apache-2.0
"""The table of classes: one file each, no other place names a class."""
from export_model.wrapper import Decoder, Network
from export_model.wrappers.decoders import Flux2Decoder, HunyuanVideoDecoder, KlDecoder, LtxDecoder
from export_model.wrappers.flux import Flux
from export_model.wrappers.flux2 import Flux2
from export_model.wrappers.hunyuan_video import HunyuanVideo
from export_model.wrappers.image_reward import ImageRewardNetwork
from export_model.wrappers.language_models import Flux2KleinReader, Flux2Reader, QwenImageReader, ZImageReader
from export_model.wrappers.ltx import Ltx
from export_model.wrappers.mask2former import Mask2FormerNetwork
from export_model.wrappers.pp_ocr import MobileDetector, MobileRecogniser, ServerDetector, ServerRecogniser
from export_model.wrappers.pp_ocr_v6 import V6MediumDetector, V6SmallDetector, V6SmallRecogniser, V6TinyRecogniser
from export_model.wrappers.qwen_image import QwenImage
from export_model.wrappers.sd3 import Sd3
from export_model.wrappers.text_encoders import T5, ClipText, ClipTextProjected, Umt5
from export_model.wrappers.wan import Wan
from export_model.wrappers.wan_decoder import QwenImageDecoder, WanDecoder
from export_model.wrappers.z_image import ZImage

WRAPPERS = {wrapper.class_name(): wrapper
            for wrapper in (Sd3, Flux, Wan, QwenImage, ZImage, Flux2, HunyuanVideo, Ltx, ImageRewardNetwork,
                            Mask2FormerNetwork, MobileDetector, ServerDetector, MobileRecogniser, ServerRecogniser,
                            V6SmallDetector, V6MediumDetector, V6SmallRecogniser, V6TinyRecogniser, KlDecoder, Flux2Decoder,
                            HunyuanVideoDecoder, LtxDecoder, WanDecoder, QwenImageDecoder, T5, Umt5, ClipText,
                            ClipTextProjected, QwenImageReader, ZImageReader, Flux2KleinReader, Flux2Reader)}

# Name -> (class, small config).
TINY = {name: (class_name, config) for class_name, wrapper in WRAPPERS.items() for name, config in wrapper.tiny.items()}
TINY_TRANSFORMERS = [name for name, (class_name, _) in TINY.items() if not issubclass(WRAPPERS[class_name], Network)]
TINY_DECODERS = [name for name, (class_name, _) in TINY.items() if issubclass(WRAPPERS[class_name], Decoder)]
