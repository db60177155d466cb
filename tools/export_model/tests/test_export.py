# SPDX-License-Identifier: Apache-2.0
"""Tests of the exporter: what a graph says, that it computes what its module does, and what is refused."""
import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import torch

from export_model import self_check
from export_model.graph_file import config_hash, exported_graph, graph_bytes, read_graph
from export_model.interpreter import run
from export_model.nodes import Node, Value, block_of, block_runs, without_dead_nodes
from export_model.pipeline_check import check_pipeline
from export_model.tests.own_class import Drift, DriftWrapper
from export_model.tracing import ExportError, full_config, make_transformer
from export_model.wrapper import Symbol
from export_model.wrappers import TINY, WRAPPERS

TOOLS = pathlib.Path(__file__).resolve().parents[2]


def drift(**config):
    return exported_graph(DriftWrapper, make_transformer(DriftWrapper, config, fake=True))


def of_op(graph, op):
    return [node for node in graph["nodes"] if node["op"] == op]


class Nodes(unittest.TestCase):
    def test_results_that_nothing_uses_are_dropped_but_writes_are_kept(self):
        a, b, c, d = (Value(name) for name in "abcd")
        nodes = [Node("aten::neg", "", {"self": a}, b), Node("aten::add_", "Tensor", {"self": a}, c, writes=True),
                 Node("aten::cat", "", {"tensors": [a, a]}, d)]
        self.assertEqual([n.op for n in without_dead_nodes(nodes, d)], ["aten::add_", "aten::cat"])

    def test_a_block_is_the_outermost_element_of_a_list(self):
        lists = {"blocks", "blocks.0.ff.net", "refiner.layers"}
        self.assertEqual(block_of("blocks.10.ff.net.0.proj", lists), "blocks.10")
        self.assertEqual(block_of("refiner.layers.1", lists), "refiner.layers.1")
        self.assertIsNone(block_of("head.0", lists))

    def test_a_block_is_a_run_and_takes_in_what_no_module_called(self):
        paths = ["", "blocks.0", "", "blocks.0", "head", "blocks.0", "blocks.1", ""]
        nodes = [Node("aten::neg", "", {}, Value("v"), module=path) for path in paths]
        self.assertEqual(block_runs(nodes, {"blocks"}), [["blocks.0", 1, 4], ["blocks.0", 5, 6], ["blocks.1", 6, 7]])


# Promise: An exported graph is its pipeline's velocity. Graphs of small random models of eight
# classes were compared in float32 with what diffusers' pipelines give their schedulers, at four
# sizes, batches of one and prompts of unequal length among them: velocities within 1e-5, all
# gradients within 1e-4. A wrong scale of the timestep or of the guidance and a wrong sign are
# found. Graphs of published sizes have the tensors of their classes, and shapes alone go through
# them; they were not run with weights.
class GraphOfOnesOwnClass(unittest.TestCase):
    def test_it_is_the_module_at_other_sizes(self):
        self.assertIn("ok  drift", self_check.check_graph(DriftWrapper, "drift", {}))

    def test_header(self):
        graph = drift(layers=3)
        self.assertEqual(graph["config"], {"channels": 3, "width": 8, "layers": 3, "limit": None})
        self.assertEqual(graph["inputs"][0]["shape"], ["B", 3, "H", "W"])
        self.assertEqual(graph["symbols"]["S"], {"min": 1, "max": 9})
        self.assertEqual([b["name"] for b in graph["blocks"]], ["blocks.0", "blocks.1", "blocks.2"])
        named = {p["name"]: p for p in graph["parameters"]}
        self.assertTrue(named["blocks.0.0.weight"]["linear"])
        self.assertEqual((named["unused.weight"]["slot"], named["unused.weight"]["linear"]), (None, True))
        self.assertTrue(named["scale"]["buffer"])
        self.assertNotIn("turn", named)
        self.assertEqual(graph["operators"], sorted({n["op"] + ("." if n["overload"] else "") + n["overload"] for n in graph["nodes"]}))

    def test_slots_are_written_once_and_before_they_are_read(self):
        graph = drift()
        known = {entry["slot"] for key in ("inputs", "parameters", "constants") for entry in graph[key]} - {None}
        written = len(known)
        for node in graph["nodes"]:
            for argument in json.dumps(node["args"]).split('{"v": ')[1:]:
                self.assertIn(int(argument.split("}")[0]), known)
            out = [slot for slot in (node["out"] if isinstance(node["out"], list) else [node["out"]]) if slot is not None]
            known.update(out)
            written += len(out)
        self.assertEqual((len(known), max(known) + 1), (written, graph["slots"]))
        self.assertIn(graph["output"], known)

    def test_what_the_trace_adds_is_gone(self):
        graph = drift()
        for op in ("aten::dropout", "aten::slice", "aten::_assert_tensor_metadata", "aten::getitem"):
            self.assertEqual(of_op(graph, op), [])
        self.assertEqual([slot is None for slot in of_op(graph, "aten::unbind")[0]["out"]], [False, True, False])

    def test_subgraphs_are_inlined(self):
        graph = drift()
        self.assertFalse(of_op(graph, "aten::view_as_complex")[0]["autocast"])
        self.assertNotIn("autocast", of_op(graph, "aten::linear")[0])
        self.assertEqual(len(of_op(graph, "aten::detach")), 1)

    def test_constants_and_numbers(self):
        graph = drift()
        turn, = graph["constants"]
        self.assertEqual((turn["complex"], turn["shape"], turn["dtype"]), (True, [4, 2], "float32"))
        self.assertEqual(of_op(graph, "aten::clamp")[0]["args"]["max"], {"number": "inf"})

    def test_the_same_bytes_each_time(self):
        self.assertEqual(graph_bytes(drift()), graph_bytes(drift()))


class GraphOfANetwork(unittest.TestCase):
    name = "image_reward_tiny"

    def test_it_is_the_module_under_published_names(self):
        wrapper = WRAPPERS["ImageReward"]
        self.assertIn("ok  image_reward_tiny", self_check.check_graph(wrapper, self.name, wrapper.tiny[self.name]))
        graph = exported_graph(wrapper, make_transformer(wrapper, wrapper.tiny[self.name], fake=True))
        self.assertNotIn("latent", graph)
        self.assertNotIn("output", graph)
        self.assertEqual([entry["name"] for entry in graph["outputs"]], ["value"])
        self.assertEqual({entry["name"]: entry["dtype"] for entry in graph["inputs"]},
                         {"pixels": "float32", "ids": "int64", "mask": "float32"})
        names = {entry["name"] for entry in graph["parameters"]}
        self.assertTrue({"blip.visual_encoder.cls_token", "blip.visual_encoder.blocks.0.norm1.bias",
                         "blip.text_encoder.encoder.layer.1.crossattention.self.query.weight", "mlp.layers.7.bias"} <= names)
        self.assertFalse([name for name in names if not name.startswith(("blip.", "mlp.layers."))])

    def test_a_wrong_graph_is_found(self):
        wrapper = WRAPPERS["ImageReward"]
        with mock.patch.object(self_check, "run", lambda *args: tuple(t * 1.001 for t in run(*args))), \
                self.assertRaisesRegex(ExportError, "outputs differ by 1.0e-03"):
            self_check.check_graph(wrapper, self.name, wrapper.tiny[self.name])


# Promise: A decoder that is a graph makes diffusers' pictures.
class GraphOfAClip(unittest.TestCase):
    wrapper, name = WRAPPERS["AutoencoderKLWan"], "wan_decoder_still"

    def test_frame_by_frame_it_is_the_module_that_takes_all(self):
        self.assertIn("ok  wan_decoder_still", self_check.check_graph(self.wrapper, self.name, self.wrapper.tiny[self.name]))

    def test_a_graph_that_forgets_is_found(self):
        forgetful = lambda graph, tensors, z: torch.cat([run(graph, tensors, {"latents": frame})[0] for frame in z.split(1, 2)], 2)
        with mock.patch.object(self_check, "decoded", forgetful), self.assertRaisesRegex(ExportError, "outputs differ by"):
            self_check.check_graph(self.wrapper, self.name, self.wrapper.tiny[self.name])

    def test_states_are_inputs_and_outputs_of_the_next_frames(self):
        graph = exported_graph(self.wrapper, make_transformer(self.wrapper, self.wrapper.tiny[self.name], fake=True))
        states = [entry["name"] for entry in graph["next"]["inputs"]][1:]
        self.assertEqual((graph["version"], len(states)), (2, 1 + 4 + 2 * 4 + 1))
        for part in (graph, graph["next"]):
            self.assertEqual([entry["name"] for entry in part["outputs"]], ["pixels", *states])
        self.assertEqual(graph["next"]["inputs"][-1]["shape"], ["B", 4, 2, "2H", "2W"])
        self.assertFalse({entry["slot"] for entry in graph["inputs"]} & {entry["slot"] for entry in graph["next"]["inputs"]})

    def test_factors_that_are_not_the_levels_are_refused(self):
        vae = make_transformer(self.wrapper, self.wrapper.tiny[self.name] | {"scale_factor_temporal": 4}, fake=True)
        with self.assertRaisesRegex(ExportError, "scale_factor_temporal is 4, the levels make 1"):
            self.wrapper.decoder(vae)


# Promise: An exported graph is its pipeline's velocity.
class Refusals(unittest.TestCase):
    def refused(self, pattern, function, *args):
        with self.assertRaisesRegex(ExportError, pattern), contextlib.redirect_stderr(io.StringIO()):
            function(*args)

    def test_a_size_made_a_number(self):
        with mock.patch.object(Drift, "forward", lambda self, p, level, prompt: self.leave(self.enter(p)) * int(prompt.shape[1])):
            self.refused("fixes the size", drift)

    def test_an_operator_that_is_not_pytorchs(self):
        with torch.library._scoped_library("oxbow_test", "FRAGMENT") as library:
            library.define("twice(Tensor x) -> Tensor")
            library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
            library.impl("twice", lambda x: x * 2, "Meta")
            with mock.patch.object(Drift, "forward", lambda self, p, level, prompt: torch.ops.oxbow_test.twice(p)):
                self.refused("oxbow_test::twice is not PyTorch's own", drift)

    def test_inputs_that_forward_does_not_take(self):
        with mock.patch.object(DriftWrapper, "inputs", lambda config: {"x": ["B", 3, "H", "W"], "sigma": ["B"], "text": ["B", "S", 8]}):
            self.refused("inputs\\(\\) names", drift)

    def test_variants_that_take_pictures(self):
        tiny = WRAPPERS["WanTransformer3DModel"].tiny["wan_tiny"]
        wrapper = WRAPPERS["WanTransformer3DModel"]
        self.refused("'added_kv_proj_dim' is of an image-to-video model",
                     lambda: exported_graph(wrapper, make_transformer(wrapper, tiny | {"added_kv_proj_dim": 24}, fake=True)))

    def test_latents_of_another_mean(self):
        wrapper = WRAPPERS["AutoencoderKL"]
        tiny = wrapper.tiny["kl_decoder_one_level"] | {"latents_mean": [0.5], "latents_std": [2.0]}
        self.refused("latents_mean and latents_std", lambda: exported_graph(wrapper, make_transformer(wrapper, tiny, fake=True)))

    def test_limits_off_the_grid(self):
        with self.assertRaises(ValueError):
            Symbol(min=2, max=7, multiple=2)

    def test_a_wrong_graph_is_found(self):
        with mock.patch.object(self_check, "run", lambda *args: run(*args) * 1.001):
            self.refused("velocities differ by 1.0e-03", self_check.check_graph, DriftWrapper, "drift", {})

    def test_wrong_conventions_are_found_by_the_pipeline(self):
        wrapper = WRAPPERS["FluxTransformer2DModel"]
        forward = wrapper.forward
        for wrong in (lambda self, x, sigma, *a, **k: forward(self, x, sigma * 1000, *a, **k),
                      lambda self, x, sigma, tokens, pooled, guidance: forward(self, x, sigma, tokens, pooled, guidance * 1000),
                      lambda *a, **k: -forward(*a, **k)):
            with mock.patch.object(wrapper, "forward", with_signature(forward, wrong)):
                self.refused("against FluxPipeline: velocities differ", check_pipeline, "flux_dev_tiny")


def with_signature(forward, changed):
    """torch.export reads the names of forward's arguments."""
    def replaced(self, x, sigma, tokens, pooled, guidance=None):
        return changed(self, x, sigma, tokens, pooled, guidance)
    return replaced


class CommandLine(unittest.TestCase):
    def call(self, *args):
        return subprocess.run([sys.executable, "-m", "export_model", *map(str, args)], cwd=TOOLS, capture_output=True, text=True)

    def test_a_class_of_ones_own(self):
        with tempfile.TemporaryDirectory() as directory:
            directory = pathlib.Path(directory)
            (directory / "config.json").write_text('{"_class_name": "Drift", "layers": 2, "limit": 4.0, "of_later": 1}')
            done = self.call("export", "Drift", "--config", directory / "config.json", "--out", directory / "out",
                             "--wrapper", TOOLS / "export_model/tests/own_class.py")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("Drift takes no key of_later", done.stderr)
            graph = read_graph(directory / "out/graph.json.gz")
            self.assertEqual((graph["class"], graph["config"]["layers"]), ("Drift", 2))

    def test_one_line_for_a_mistake(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "config.json"
            path.write_text('{"_class_name": "FluxTransformer2DModel"}')
            done = self.call("export", "SD3Transformer2DModel", "--config", path, "--out", directory)
            self.assertEqual((done.returncode, done.stderr.strip()),
                             (1, f"export_model: {path}: is of FluxTransformer2DModel, not of SD3Transformer2DModel"))
            done = self.call("export", "UNet", "--config", path, "--out", directory)
            self.assertIn("no wrapper for 'UNet'", done.stderr)


class Configs(unittest.TestCase):
    def test_defaults_are_filled_in_before_hashing(self):
        class_name, config = TINY["flux_schnell_tiny"]
        wrapper = WRAPPERS[class_name]
        short = full_config(make_transformer(wrapper, config, fake=True))
        long = full_config(make_transformer(wrapper, {"_diffusers_version": "0.1"} | short, fake=True))
        self.assertEqual(config_hash(short), config_hash(long))
        self.assertNotEqual(config_hash(short), config_hash(short | {"num_layers": 7}))


if __name__ == "__main__":
    unittest.main()
