# SPDX-License-Identifier: Apache-2.0
"""Graphs of a diffusers directory's components, beside their configs."""
import json
import pathlib

from export_model.graph_file import exported_graph, write_graph
from export_model.tracing import make_transformer
from export_model.wrappers import WRAPPERS


def write_graphs(directory, beginning):
    """graph.json.gz in each folder of a name that begins so, if its class of model_index.json has a wrapper."""
    directory = pathlib.Path(directory)
    for folder, kind in json.loads((directory / "model_index.json").read_text()).items():
        if folder.startswith(beginning) and kind[1] in WRAPPERS:
            wrapper, config = WRAPPERS[kind[1]], json.loads((directory / folder / "config.json").read_text())
            write_graph(exported_graph(wrapper, make_transformer(wrapper, config, fake=True)), directory / folder / "graph.json.gz")
