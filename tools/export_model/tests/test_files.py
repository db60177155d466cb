# SPDX-License-Identifier: Apache-2.0
"""The committed files: goldens are what their graphs compute, and graphs are what the exporter writes today."""
import json
import pathlib
import re
import unittest

import diffusers
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch._subclasses.fake_tensor import FakeTensorMode

from export_model.graph_file import exported_graph, graph_bytes, read_graph
from export_model.interpreter import decoded, run
from export_model.published import PUBLISHED
from export_model.tracing import full_config, make_transformer
from export_model.wrapper import Symbol
from export_model.wrappers import TINY, TINY_DECODERS, TINY_TRANSFORMERS, WRAPPERS

ROOT = pathlib.Path(__file__).resolve().parents[3]
GOLDENS = sorted((ROOT / "tests/golden/exported").iterdir())
GRAPHS = sorted((ROOT / "models/graphs").glob("*.json.gz"))


# Promise: An exported graph is its pipeline's velocity.
class Goldens(unittest.TestCase):
    def test_there_is_one_for_every_small_model(self):
        drawn = re.compile(r"_\d+$")  # Other configurations of the same class.
        self.assertEqual(sorted({drawn.sub("", path.name) for path in GOLDENS}), sorted(TINY_TRANSFORMERS))

    def test_velocities(self):
        for directory in GOLDENS:
            with self.subTest(directory.name):
                graph, tensors = read_graph(directory / "graph.json.gz"), load_file(directory / "golden.safetensors")
                weights = {name[7:]: value.float() for name, value in tensors.items() if name.startswith("weight.")}
                for case in range(3):
                    inputs = {entry["name"]: tensors[f"{case}.in.{entry['name']}"] for entry in graph["inputs"]}
                    torch.testing.assert_close(run(graph, weights, inputs), tensors[f"{case}.out.v"], rtol=0, atol=1e-5)

    def test_adapters(self):
        for directory in GOLDENS:
            with self.subTest(directory.name):
                graph, tensors = read_graph(directory / "graph.json.gz"), load_file(directory / "golden.safetensors")
                with safe_open(directory / "golden.safetensors", "pt") as file:
                    scale = float(file.metadata()["alpha"]) / float(file.metadata()["rank"])
                weights = {name[7:]: value.float() for name, value in tensors.items() if name.startswith("weight.")}
                names = [n[8:-14] for n in tensors if n.startswith("adapter.") and n.endswith(".lora_A.weight")]
                linear = {p["name"] for p in graph["parameters"] if p.get("linear")}
                for name in names:
                    self.assertIn(f"{name}.weight", linear)
                    a, b = (tensors[f"adapter.{name}.lora_{side}.weight"] for side in "AB")
                    weights[f"{name}.weight"] += scale * b @ a
                inputs = {entry["name"]: tensors[f"0.in.{entry['name']}"] for entry in graph["inputs"]}
                torch.testing.assert_close(run(graph, weights, inputs), tensors["0.adapted.v"], rtol=0, atol=1e-4)

    def test_graphs(self):
        for directory in (path for path in GOLDENS if path.name in TINY):  # Not those that were drawn.
            with self.subTest(directory.name):
                class_name, config = TINY[directory.name]
                committed = read_graph(directory / "graph.json.gz")
                if (committed["torch"], committed["diffusers"]) != (torch.__version__.split("+")[0], diffusers.__version__):
                    self.skipTest("made with other versions")
                made = exported_graph(WRAPPERS[class_name], make_transformer(WRAPPERS[class_name], config, fake=True))
                self.assertEqual(graph_bytes(made), (directory / "graph.json.gz").read_bytes())


    def test_the_embedded_models_graph(self):
        wrapper = WRAPPERS["SD3Transformer2DModel"]
        config = json.loads((ROOT / "models/digits/transformer/config.json").read_text())
        made = exported_graph(wrapper, make_transformer(wrapper, config, fake=True))
        self.assertEqual(made["nodes"], read_graph(ROOT / "models/digits/transformer/graph.json.gz")["nodes"])


class Decoders(unittest.TestCase):
    directories = sorted((ROOT / "tests/golden/decoders").iterdir())

    def test_there_is_one_for_every_small_decoder(self):
        self.assertEqual([path.name for path in self.directories], sorted(TINY_DECODERS))

    def test_pixels(self):
        """If the graph takes all frames at once."""
        for directory in self.directories:
            graph, tensors = read_graph(directory / "graph.json.gz"), load_file(directory / "golden.safetensors")
            weights = {name[7:]: value.float() for name, value in tensors.items() if name.startswith("weight.")}
            with self.subTest(directory.name), torch.no_grad():
                for case in range(2):
                    pixels = decoded(graph, weights, tensors[f"{case}.latents"])
                    torch.testing.assert_close(pixels, tensors[f"{case}.pixels"], rtol=0, atol=1e-5)

    def test_graphs(self):
        for directory in self.directories:
            with self.subTest(directory.name):
                class_name, config = TINY[directory.name]
                made = exported_graph(WRAPPERS[class_name], make_transformer(WRAPPERS[class_name], config, fake=True))
                if (made["torch"], made["diffusers"]) != tuple(read_graph(directory / "graph.json.gz")[key] for key in ("torch", "diffusers")):
                    self.skipTest("made with other versions")
                self.assertEqual(graph_bytes(made), (directory / "graph.json.gz").read_bytes())


class TextEncoders(unittest.TestCase):
    def test_states(self):
        """Of the goldens that transformers' own encoders made, some with hidden tokens or longer than any table."""
        goldens = sorted((ROOT / "tests/golden/text").glob("*.graph.json.gz"))
        self.assertGreaterEqual(len(goldens), 13)
        for path in goldens:
            with self.subTest(path.name):
                graph, tensors = read_graph(path), load_file(path.with_name(path.name.removesuffix(".graph.json.gz") + ".safetensors"))
                weights = {name[7:]: value.float() for name, value in tensors.items() if name.startswith("weight.")}
                weights.setdefault("shared.weight", weights.get("encoder.embed_tokens.weight"))
                inputs = {"ids": tensors["in.ids"], "mask": tensors.get("in.mask", torch.ones(())).float()}
                found = dict(zip((entry["name"] for entry in graph["outputs"]), run(graph, weights, inputs)))
                for name, expected in tensors.items():
                    if name.startswith("out."):
                        torch.testing.assert_close(found[name[4:]], expected, rtol=0, atol=1e-5)

    def test_graphs_of_small_models(self):
        for path in sorted((ROOT / "models").glob("*/text_encoder*/graph.json.gz")):
            with self.subTest(str(path.parent)):
                committed, config = read_graph(path), json.loads((path.parent / "config.json").read_text())
                wrapper = WRAPPERS[config["architectures"][0]]
                made = exported_graph(wrapper, make_transformer(wrapper, config, fake=True))
                if (made["torch"], made["transformers"]) != (committed["torch"], committed["transformers"]):
                    self.skipTest("made with other versions")
                self.assertEqual(graph_bytes(made), path.read_bytes())


# Promise: An exported graph is its pipeline's velocity.
class PublishedGraphs(unittest.TestCase):
    def test_there_is_one_for_every_known_config(self):
        names = sorted(f"{class_name}-{name}.json.gz" for name, (class_name, _) in PUBLISHED.items())
        self.assertEqual([path.name for path in GRAPHS], names)

    def test_configs_and_tensors(self):
        for path in GRAPHS:
            with self.subTest(path.name):
                graph = read_graph(path)
                class_name, config = PUBLISHED[path.name.removesuffix(".json.gz").split("-", 1)[1]]
                wrapper = WRAPPERS[class_name]
                transformer = make_transformer(wrapper, config, fake=True)
                config = {key: value for key, value in full_config(transformer).items() if key not in wrapper.notes}
                self.assertEqual((graph["class"], graph["config"]), (class_name, config))
                self.assertEqual({p["name"]: p["shape"] for p in graph["parameters"]},
                                 {wrapper.published_name(name): list(t.shape) for name, t in transformer.state_dict().items()})

    def test_dry_runs(self):
        """Shapes alone go through every node, at the pipeline's default size and for one row."""
        for path in GRAPHS:
            with self.subTest(path.name), FakeTensorMode(allow_non_fake_inputs=True):
                graph = read_graph(path)
                sizes = {name: Symbol(**limits).size(2) for name, limits in graph["symbols"].items()} | {"B": 1}
                if latent := graph.get("latent"):
                    sizes |= {"H": latent["side"], "W": latent["side"] // 4 * 2, "F": latent.get("frames"), "S": 77}
                inputs = {entry["name"]: torch.empty([sizes.get(size, size) for size in entry["shape"]],
                                                     dtype=getattr(torch, entry["dtype"])) for entry in graph["inputs"]}
                weights = {entry["name"]: torch.empty(entry["shape"]) for entry in graph["parameters"]}
                if "decoder" in graph:
                    made, (height, width), latents = graph["decoder"], (sizes["H"], sizes["W"]), inputs["latents"]
                    frames = [1 + made["time"]] if latents.dim() == 5 else []
                    pixels = decoded(graph, weights, torch.cat([latents, latents], dim=2) if "next" in graph else latents)
                    self.assertEqual(list(pixels.shape), [1, 3, *frames, height * made["space"], width * made["space"]])
                    continue
                v = run(graph, weights, inputs)
                if "latent" not in graph:
                    self.assertEqual([(t.shape[0], t.dtype) for t in v], [(1, torch.float32)] * len(graph["outputs"]))
                    continue
                self.assertEqual((v.shape, v.dtype), (inputs["x"].shape, torch.float32))


if __name__ == "__main__":
    unittest.main()
