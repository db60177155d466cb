"""The table of classes: one file each, no other place names a class."""
from export_model.wrappers.sd3 import Sd3

WRAPPERS = {wrapper.transformer_class: wrapper for wrapper in (Sd3,)}
