# SPDX-License-Identifier: Apache-2.0
"""The local files of trackers: [(step, name, value)] in the order of the files, of pictures the tuple of their captions."""
import glob
import json
import math
import os
import struct
from pathlib import Path


def wandb_points(folder, run):
    from wandb.proto import wandb_internal_pb2

    for path in sorted(glob.glob(f"{folder}/wandb/offline-run-*-{run}/run-{run}.wandb")):
        for record in log_records(Path(path).read_bytes()):
            message = wandb_internal_pb2.Record.FromString(record)
            told = {tuple(item.nested_key) or (item.key,): item.value_json for item in message.history.item}
            for name, text in told.items():
                if name[-1] == "_type":
                    captions = json.loads(told[(*name[:-1], "captions")])
                    yield int(told["_step",]), "/".join(name[:-1]), tuple(captions)
                elif len(name) == 1 and not name[0].startswith("_") and "/" in name[0] and text[0] != "{":
                    yield int(told["_step",]), name[0], _number(text)


def _number(text):
    value = json.loads(text)
    return math.nan if value == "NaN" else value


def swanlab_points(folder, run):
    from swanlab.proto.swanlab.record.v1 import record_pb2

    for path in sorted(glob.glob(f"{folder}/run-*-{run}/run-{run}.swanlab")):
        for record in log_records(Path(path).read_bytes()):
            message = record_pb2.Record.FromString(record)
            if message.HasField("scalar"):
                yield message.scalar.step, message.scalar.key, message.scalar.value.number
            elif message.HasField("media"):
                yield message.media.step, message.media.key, tuple(item.caption for item in message.media.value.items)


def mlflow_points(folder, run):
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.tracking import MlflowClient

    client = MlflowClient(Path(folder).absolute().as_uri())
    for name in set(client.get_run(run).data.metrics) - {"oxbow.step"}:
        for one in client.get_metric_history(run, name):
            yield one.step, name, one.value
    for path in Path(folder).rglob("samples/step_*"):
        yield int(path.name[len("step_"):]), "samples/eval", tuple(sorted(file.name for file in path.iterdir()))


def log_records(data):
    """The records of a file in LevelDB's log format, behind a header of seven bytes; a cut last one is left out."""
    at, parts = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        if at + 7 + length > len(data):
            return
        parts += data[at + 7:at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # Whole, or the last part.
            yield parts
            parts = b""
