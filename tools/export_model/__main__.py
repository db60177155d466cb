# SPDX-License-Identifier: Apache-2.0
"""python -m export_model export CLASS --config config.json --out DIR; see README.md."""
import argparse
import importlib.util
import json
import pathlib
import resource
import sys
import time

import torch

from export_model.graph_file import exported_graph, write_graph
from export_model.published import PUBLISHED
from export_model.self_check import check_graph
from export_model.tracing import ExportError, make_transformer
from export_model.wrapper import Decoder, Wrapper
from export_model.wrappers import TINY, WRAPPERS


def wrapper_in(path):
    """The one wrapper class of a user's file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = [value for value in vars(module).values()
             if isinstance(value, type) and issubclass(value, Wrapper) and value.__module__ == module.__name__]
    if len(found) != 1:
        raise ExportError(f"{path}: has {len(found)} classes derived from Wrapper, must have one")
    return found[0]


def wrapper_named(name, path):
    if path:
        return wrapper_in(path)
    if name not in WRAPPERS:
        raise ExportError(f"no wrapper for '{name}'; there are {', '.join(WRAPPERS)}; or give --wrapper FILE")
    return WRAPPERS[name]


def export(wrapper, config, path):
    start = time.monotonic()
    graph = exported_graph(wrapper, make_transformer(wrapper, config, fake=True))
    write_graph(graph, path)
    elements = sum(torch.Size(entry["shape"]).numel() for entry in graph["parameters"])
    print(f"{path}: {graph['class']}, {elements:,} weights, {len(graph['nodes'])} nodes, {len(graph['blocks'])} blocks, "
          f"{path.stat().st_size:,} bytes, {time.monotonic() - start:.0f} s, "
          f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2 ** 20:.1f} GiB", flush=True)


def checked(wrapper, name):
    """Prints what a small model was compared with; ExportError if it differs."""
    from export_model.decoder_check import check_decoder  # These take seconds to load.
    from export_model.pipeline_check import PIPELINES, check_pipeline
    print(check_graph(wrapper, name, wrapper.tiny[name]), flush=True)
    if name in PIPELINES:
        print(check_pipeline(name), flush=True)
    if issubclass(wrapper, Decoder) and name in TINY:
        print(check_decoder(name), flush=True)


def run_export(args):
    wrapper = wrapper_named(args.transformer, args.wrapper)
    config = json.loads(args.config.read_text())
    named = config.get("_class_name", args.transformer)
    if named != args.transformer:
        raise ExportError(f"{args.config}: is of {named}, not of {args.transformer}")
    for name in wrapper.tiny:
        checked(wrapper, name)
    export(wrapper, config, args.out / "graph.json.gz")


def run_check(args):
    for name in args.names or list(TINY):
        if name not in TINY:
            raise ExportError(f"no small model '{name}'; there are {', '.join(TINY)}")
        checked(WRAPPERS[TINY[name][0]], name)


def run_published(args):
    for name in args.names or list(PUBLISHED):
        if name not in PUBLISHED:
            raise ExportError(f"no published model '{name}'; there are {', '.join(PUBLISHED)}")
        class_name, config = PUBLISHED[name]
        export(WRAPPERS[class_name], config, args.out / f"{class_name}-{name}.json.gz")


def main():
    parser = argparse.ArgumentParser(prog="export_model", description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("export", help="write DIR/graph.json.gz for a transformer's config.json")
    command.add_argument("transformer", metavar="CLASS", help="class of diffusers, as in config.json")
    command.add_argument("--config", type=pathlib.Path, required=True)
    command.add_argument("--out", type=pathlib.Path, required=True)
    command.add_argument("--wrapper", type=pathlib.Path, help="a file with a wrapper of your own")
    command.set_defaults(run=run_export)
    command = commands.add_parser("check", help="small models: graph against diffusers and against the pipelines")
    command.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TINY))
    command.set_defaults(run=run_check)
    command = commands.add_parser("published", help="write the graphs of published models")
    command.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PUBLISHED))
    command.add_argument("--out", type=pathlib.Path, default=pathlib.Path("models/graphs"))
    command.set_defaults(run=run_published)
    args = parser.parse_args()
    torch.set_num_threads(1)
    try:
        args.run(args)
    except (ExportError, OSError, json.JSONDecodeError) as error:
        sys.exit(f"export_model: {error}")


if __name__ == "__main__":
    main()
