"""The table of classes: one file each, no other place names a class."""
from export_model.wrappers.flux import Flux
from export_model.wrappers.flux2 import Flux2
from export_model.wrappers.hunyuan_video import HunyuanVideo
from export_model.wrappers.ltx import Ltx
from export_model.wrappers.qwen_image import QwenImage
from export_model.wrappers.sd3 import Sd3
from export_model.wrappers.wan import Wan
from export_model.wrappers.z_image import ZImage

WRAPPERS = {wrapper.transformer_class: wrapper
            for wrapper in (Sd3, Flux, Wan, QwenImage, ZImage, Flux2, HunyuanVideo, Ltx)}

# Name -> (class, small config).
TINY = {name: (wrapper.transformer_class, config) for wrapper in WRAPPERS.values() for name, config in wrapper.tiny.items()}
