# SPDX-License-Identifier: Apache-2.0
"""Small random pipelines: the room holds what encode_prompt says of each prompt alone; a second run encodes what is missing."""
import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import diffusers  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors import safe_open  # noqa: E402

import pipelines  # noqa: E402
import room  # noqa: E402
import small  # noqa: E402

diffusers.utils.logging.set_verbosity_error()
transformers.logging.set_verbosity_error()
diffusers.utils.logging.disable_progress_bar()
TEXTS = ["a red cat", "\u4f60\u597d", "a much longer prompt, of many more letters"]


def tool():
    import importlib.util
    spec = importlib.util.spec_from_file_location("encode_prompts_main", HERE.parent / "__main__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*words, warnings=None):
    """The tool's output; its warnings go to the list."""
    with mock.patch.object(sys, "argv", ["encode_prompts", *map(str, words)]), \
            contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(io.StringIO()) as warned:
        tool().main()
    if warnings is not None:
        warnings += [line for line in warned.getvalue().splitlines() if "warning: " in line]
    return said.getvalue()


# Promise: Prompts may be encoded elsewhere.
class EncodePromptsTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)

    def arguments(self, model, prompts, tokens=512):
        return ["--model", model, "--cache", self.root / "cache", "--tokens", tokens, "--prompts", prompts, "--batch", 2]

    def test_the_room_holds_what_each_pipeline_says(self):
        prompts = self.root / "prompts.txt"
        prompts.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
        for name in pipelines.ENCODE:
            with self.subTest(name):
                model = self.root / name
                pipe = small.save(name, model)
                self.assertIn("encoded 4 prompts", run(*self.arguments(model, prompts)))
                identity = room.identity(model, 512, "f32")
                for text in [""] + TEXTS:
                    path = room.Room(self.root / "cache", identity).path(text)
                    with safe_open(path, "pt") as file:
                        self.assertEqual(file.metadata()["oxbow.text_encoders"], identity)
                        stored = {key: file.get_tensor(key).float() for key in file.keys()}
                    alone = pipelines.encoded(pipe, [text], 512)[0]
                    self.assertEqual(stored.keys(), alone.keys())
                    for key, value in alone.items():
                        torch.testing.assert_close(stored[key], value, atol=2e-5, rtol=1e-4)

    def test_what_is_there_is_left_out(self):
        model, prompts = self.root / "model", self.root / "prompts.jsonl"
        small.save("HunyuanVideoPipeline", model)
        prompts.write_text(json.dumps({"prompt": "one"}) + "\n")
        self.assertIn("encoded 2 prompts", run(*self.arguments(model, prompts, 40)))
        prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in ("one", "two", "two")))
        self.assertIn("encoded 1 prompts", run(*self.arguments(model, prompts, 40)))
        self.assertIn("encoded 0 prompts", run(*self.arguments(model, prompts, 40)))
        self.assertIn("encoded 3 prompts", run(*self.arguments(model, prompts, 41)))
        self.assertFalse(list(self.root.glob("cache/**/*.tmp*")))

    def test_other_weights_types_lengths_and_templates_are_other_rooms(self):
        model, other = self.root / "model", self.root / "other"
        small.save("HunyuanVideoPipeline", model)
        small.save("HunyuanVideoPipeline", other, seed=4)
        names = {room.identity(model, 8, "f32"), room.identity(model, 9, "f32"), room.identity(model, 8, "bf16"),
                 room.identity(other, 8, "f32")}
        (model / "tokenizer" / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
        names.add(room.identity(model, 8, "f32"))
        self.assertEqual(len(names), 5)

    def test_a_byte_in_the_middle_of_a_large_tensor_is_another_room_although_its_time_is_put_back(self):
        model = self.root / "model"
        small.save("HunyuanVideoPipeline", model)
        file = model / "text_encoder" / "model.safetensors"
        large = {name: torch.zeros(9 << 20) for name in ("a", "b")}
        file.write_bytes(room.save(large))
        with mock.patch.dict(os.environ, XDG_CACHE_HOME=str(self.root / "home")), mock.patch.object(room, "SETTLED", 0):
            before = room.identity(model, 8, "f32")
            self.assertEqual(len(list(self.root.glob("home/oxbow/digests/*"))), 1)
            self.assertEqual(room.identity(model, 8, "f32"), before)
            facts = file.stat()
            with open(file, "r+b") as out:
                out.seek(facts.st_size // 4)
                out.write(b"\1")
            os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
            self.assertNotEqual(room.identity(model, 8, "f32"), before)

    def test_prompts_that_are_cut_are_counted_and_equal_rests_are_named(self):
        model, prompts, warnings = self.root / "model", self.root / "prompts.txt", []
        small.save("HunyuanVideoPipeline", model)
        prompts.write_text("abcdefghijklmnopqr one\nabcdefghijklmnopqr two\nab\n")  # 16 letters are left beside the template.
        run(*self.arguments(model, prompts, 28), warnings=warnings)
        self.assertEqual(len(warnings), 2)
        self.assertIn("2 of 4 prompts are longer than 28 tokens and are cut (longest 44)", warnings[0])
        self.assertIn("1 prompts have the encoding of another one, because both are cut: 'abcdefghijklmnopqr one' and 'abcdefghijklmnopqr two'", warnings[1])

    def test_a_limit_that_leaves_nothing_of_a_prompt_is_refused(self):
        model, prompts = self.root / "model", self.root / "prompts.txt"
        small.save("HunyuanVideoPipeline", model)
        prompts.write_text("abcdef\n")
        with self.assertRaises(SystemExit) as said:
            run(*self.arguments(model, prompts, 1))
        self.assertIn("--tokens 1: nothing of a prompt is left behind the pipeline's template: 'abcdef'", str(said.exception))

    def test_another_pipeline_is_refused_by_name(self):
        (self.root / "model_index.json").write_text('{"_class_name": "FluxPipeline"}')
        with self.assertRaises(SystemExit) as said:
            run(*self.arguments(self.root, self.root / "prompts.txt"))
        self.assertIn("FluxPipeline", str(said.exception))


if __name__ == "__main__":
    unittest.main()
