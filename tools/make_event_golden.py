# SPDX-License-Identifier: Apache-2.0
"""Prints framed TensorBoard events as hex, made by the tensorboard package itself.

The output is committed in src/io/tensorboard/event_writer_test.cc. Needs: pip install tensorboard
"""
import io

from tensorboard.compat.proto import event_pb2
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.record_writer import RecordWriter

STRINGS = 7  # DT_STRING


def framed(event):
    out = io.BytesIO()
    out.close = lambda: None
    writer = RecordWriter(out)
    writer.write(event.SerializeToString(deterministic=True))
    writer.flush()
    return out.getvalue().hex()


def at(step):
    return event_pb2.Event(wall_time=1700000000.25, step=step)


def strings_value(event, tag, plugin, data_class, strings):
    value = event.summary.value.add(tag=tag)
    value.metadata.plugin_data.plugin_name = plugin
    value.metadata.data_class = data_class
    value.tensor.dtype = STRINGS
    value.tensor.tensor_shape.dim.add(size=len(strings))
    value.tensor.string_val.extend(strings)
    return event


print("version", framed(event_pb2.Event(wall_time=1700000000, file_version="brain.Event:2")))
scalar = at(300)
scalar.summary.value.add(tag="eval/reward_mean", simple_value=0.96875)
scalar.summary.value.add(tag="train/loss", simple_value=-1e-4)
print("scalars", framed(scalar))
print("text", framed(strings_value(at(0), "config", "text", 2, [b"# digits"])))
print("strip", framed(strings_value(at(-1), "eval", "images", 3, [b"20", b"8", b"PNG1", b"PNG2"])))
image = at(7)
value = image.summary.value.add(tag="sheet")
value.image.height, value.image.width, value.image.colorspace = 8, 20, 3
value.image.encoded_image_string = b"PNG"
print("image", framed(image))
hyper = at(0)
hyper.summary.MergeFrom(hparams_pb({"method.name": "grpo", "run.seed": 3}, trial_id="runs/a", start_time_secs=1700000000.25))
plugin = hyper.summary.value[0].metadata.plugin_data
plugin.content = HParamsPluginData.FromString(plugin.content).SerializeToString(deterministic=True)  # Sorts the map.
print("hyper", framed(hyper))
restart = at(26)
restart.session_log.status = event_pb2.SessionLog.START
print("restart", framed(restart))
