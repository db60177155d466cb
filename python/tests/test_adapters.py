# SPDX-License-Identifier: Apache-2.0
"""Rewards of other trainers run unchanged; their servers' pickles make nothing but plain data."""
import io
import os
import pickle
import threading
import unittest
from collections import OrderedDict
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import numpy as np
from servers import ask, colourful, grey, serving, values

from oxbow.reward import Item
from oxbow.reward.adapters import deqa, flow_factory, flow_grpo, geneval
from oxbow.reward.adapters import plain_pickle
from oxbow.reward.contract.pictures import picture, raw
from oxbow.reward.outcome import outcomes

try:
    import torch
except ImportError:
    torch = None


def item(seed=0, width=6, height=4, channels=3, frames=1, **arguments):
    return Item(np.stack([picture(seed + i, width, height, channels) for i in range(frames)]), **arguments)


class FlowGrpoTest(unittest.TestCase):
    def make(self):
        self.calls = []

        def fn(images, prompts, metadata):
            self.calls.append((images.shape, prompts, metadata))
            return np.array([float(image.sum()) for image in images]), {"more": 1}

        return fn

    def test_a_function_gets_arrays_of_one_size_and_answers_in_the_items_order(self):
        one = flow_grpo("sum", self.make, range=(0, 1e6), torch=False)
        items = [item(1, prompt="a", metadata={"n": 1}), item(2, width=9, prompt="b"), item(3, prompt="c"),
                 item(4, channels=1, prompt="d")]
        self.assertEqual(list(one(items)), [float(np.repeat(each.frames, 3 // each.frames.shape[3], 3).sum())
                                            for each in items])
        self.assertEqual(self.calls, [((3, 4, 6, 3), ["a", "c", "d"], [{"n": 1}, {}, {}]),
                                      ((1, 4, 9, 3), ["b"], [{}])])

    def test_clips_have_one_dimension_more(self):
        one = flow_grpo("sum", self.make, range=(0, 1e6), torch=False, media=("video",))
        list(one([item(frames=5)]))
        self.assertEqual(self.calls[0][0], (1, 5, 4, 6, 3))

    def test_pick_chooses_among_several_scores(self):
        def multi():
            return lambda images, prompts, metadata: ({"avg": [0.5], "ocr": [0.25]}, {})

        one = flow_grpo("avg", multi, range=(0, 1), torch=False, pick=lambda result: result[0]["ocr"])
        self.assertEqual(list(one([item()])), [0.25])

    def test_a_function_that_returns_too_few_scores_scores_nothing(self):
        one = flow_grpo("few", lambda: lambda *_: ([1.0], {}), range=(0, 1), torch=False)
        self.assertTrue(all(made.code for made in outcomes("few", one, [item(), item()])))

    @unittest.skipIf(torch is None, "needs torch")
    def test_a_tensor_has_the_pixels_of_the_picture(self):
        def make():
            return lambda images, *_: ((images * 255).round().to(torch.uint8).permute(0, 2, 3, 1).sum((1, 2, 3)), {})

        each = item(7)
        self.assertEqual([float(value) for value in flow_grpo("t", make, range=(0, 1))([each])],
                         [float(each.frames.sum())])


class GroupwiseRewardModel:
    """Stands for Flow-Factory's class of this name."""


class Pointwise:
    """A reward of one item."""

    required_fields = ("prompt", "image")

    def __init__(self, config, accelerator):
        self.weight, self.device, self.rank = config.weight, config.device, accelerator.local_process_index

    def __call__(self, prompt, image=None, video=None, metadata=None):
        media = image or [clip[0] for clip in video]
        assert all(picture.mode == "RGB" for picture in media)
        return SimpleNamespace(rewards=[self.weight * picture.getpixel((0, 0))[0] + len(text) + len(more)
                                        for picture, text, more in zip(media, prompt, metadata)])


class Ranking(GroupwiseRewardModel):
    def __init__(self, config, accelerator):
        pass

    def __call__(self, prompt, image, **kwargs):
        assert set(kwargs) == {"metadata"}
        levels = [picture.getpixel((0, 0))[0] for picture in image]
        return SimpleNamespace(rewards=np.argsort(np.argsort(levels)) / len(levels))


class Hungry(Pointwise):
    required_fields = ("prompt", "audio")


class FlowFactoryTest(unittest.TestCase):
    def test_a_class_gets_what_its_signature_takes(self):
        one = flow_factory("p", Pointwise, range=(0, 999), config={"weight": 2}, media=("image", "video"))
        with serving(one) as (_, client):
            responses = ask(client, grey(10), raw(np.full((3, 4, 1), 20, np.uint8), frames=2), prompt="abc",
                            metadata='{"a": 1}')
        self.assertEqual(values(responses), [2 * 10 + 3 + len('{"a": 1}'), 2 * 20 + 3 + len('{"a": 1}')])
        self.assertEqual((one.help, one.groupwise), ("A reward of one item.", False))

    def test_a_groupwise_class_gets_the_whole_group(self):
        with serving(flow_factory("r", Ranking, range=(0, 1))) as (_, client):
            self.assertTrue(client.describe().rewards[0].groupwise)
            responses = ask(client, *map(grey, (30, 10, 20, 0)), group_complete=True)
        self.assertEqual(values(responses), [0.75, 0.25, 0.5, 0])

    def test_a_class_that_needs_what_is_not_sent_cannot_load(self):
        with self.assertRaisesRegex(ValueError, "Hungry needs audio"):
            flow_factory("h", Hungry, range=(0, 1), config={"weight": 1}).load()


class Evil:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


class PlainPickleTest(unittest.TestCase):
    def test_plain_data_is_read(self):
        data = {"a": [1, 2.5, None, True, "x", b"y"], "b": (1, {2}), "c": 10 ** 30, "d": {"e": float("inf")}}
        for protocol in range(3, pickle.HIGHEST_PROTOCOL + 1):
            plain = data if protocol > 3 else {**data, "b": (1,)}  # Protocol 3 makes sets by a call.
            self.assertEqual(plain_pickle.read(pickle.dumps(plain, protocol)), plain)
        self.assertEqual(plain_pickle.read(b"(lp0\nF0.5\na."), [0.5])  # Protocol 0.

    def test_numpy_numbers_are_numbers(self):
        for number in (np.float64(0.1), np.float32(0.5), np.int64(-7), np.uint8(200), np.bool_(True), np.float16(2)):
            for protocol in range(3, pickle.HIGHEST_PROTOCOL + 1):
                got = plain_pickle.read(pickle.dumps([number], protocol))
                self.assertEqual(got, [number.item()])
                self.assertIs(type(got[0]), type(number.item()))

    def test_whatever_else_is_refused_and_never_called(self):
        sentinel = f"/tmp/oxbow-evil-{os.getpid()}"
        for evil in (Evil(os.system, (f"touch {sentinel}",)), Evil(eval, ("1",)), Evil(open, (sentinel, "w")),
                     np.arange(3), np.array(1.0), np.datetime64("2026-01-01"), np.complex64(1), OrderedDict(a=1),
                     SimpleNamespace(), ValueError("x"), len, np.dtype("O"), Evil(np.dtype, ("O",))):
            with self.subTest(repr(evil)), self.assertRaisesRegex(ValueError, "plain"):
                value = plain_pickle.read(pickle.dumps({"outputs": [evil]}))
                raise AssertionError(value)
        self.assertFalse(os.path.exists(sentinel))

    def test_objects_as_numpy_numbers_are_refused(self):
        scalar = np.float64(1).__reduce__()[0]
        for kind, data in ((np.dtype("f8"), b"short"), (np.dtype("O"), b"12345678"), (1, b"x"),
                           (np.dtype("V8"), b"8" * 8), (np.dtype([("a", "f8")]), b"8" * 8)):
            with self.subTest(str(kind)), self.assertRaises(ValueError):
                plain_pickle.read(pickle.dumps(Evil(scalar, (kind, data))))

    def test_a_number_in_the_memo_that_would_take_all_memory_is_refused(self):
        with self.assertRaisesRegex(ValueError, "memo"):
            plain_pickle.read(b"\x80\x03]r\xff\xff\xff\xff.")

    def test_every_cut_and_every_turned_byte_is_an_error_or_plain(self):
        whole = pickle.dumps({"outputs": [0.5, np.float64(0.25), "text"]})
        for at in range(len(whole)):
            for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1:]):
                try:
                    plain_pickle.read(damaged)
                except ValueError:
                    pass


@contextmanager
def pickle_server(answer):
    """flow_grpo's protocol: POST of a pickle. `answer(question)` gives (status, bytes)."""
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            question = pickle.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, body = answer(question)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


class PickleHttpTest(unittest.TestCase):
    def test_deqa_gets_jpegs_and_gives_its_outputs(self):
        def answer(question):
            from PIL import Image
            means = [np.asarray(Image.open(io.BytesIO(jpeg), formats=["JPEG"])).mean() / 255
                     for jpeg in question["images"]]
            return 200, pickle.dumps({"outputs": means})

        array = colourful()
        with pickle_server(answer) as url, serving(deqa(url)) as (_, client):
            value, = values(ask(client, raw(array)))
        self.assertAlmostEqual(value, array.mean() / 255, delta=0.01)

    def test_geneval_gets_metadata_and_says_which_score(self):
        seen = []

        def answer(question):
            seen.append((question["meta_datas"], question["only_strict"]))
            return 200, pickle.dumps({"scores": [0.25], "rewards": [0.5], "strict_rewards": [1.0],
                                      "group_rewards": {}, "group_strict_rewards": {}})

        row = '{"tag": "counting", "include": []}'
        with pickle_server(answer) as url, serving(geneval(url), geneval(url, name="s", strict=True)) as (_, client):
            response, = ask(client, raw(colourful()), metadata=row)
            unknown, = ask(client, raw(colourful()), metadata="{}")
        self.assertEqual([(one.name, one.value) for one in response.rewards], [("geneval", 0.25), ("s", 1.0)])
        self.assertEqual(sorted(strict for _, strict in seen), [False, True])
        self.assertEqual(seen[0][0], [{"tag": "counting", "include": []}])
        self.assertEqual(unknown.status_code, 3)

    def test_what_is_no_answer_is_an_error_in_one_line(self):
        for status, body, words in ((500, b"Traceback\nKeyError: 'images'", "answers 500: KeyError: 'images'"),
                                    (200, b"junk", "not a pickle of plain data"),
                                    (200, pickle.dumps({"scores": [1.0]}), "has no list outputs"),
                                    (200, pickle.dumps({"outputs": [1.0, 2.0]}), "2 scores returned for 1 items"),
                                    (200, pickle.dumps({"outputs": Evil(eval, ("[1.0]",))}),
                                     "not plain data: builtins.eval")):
            with self.subTest(words), pickle_server(lambda question, s=status, b=body: (s, b)) as url:
                made, = outcomes("deqa", deqa(url), [item()])
                self.assertIn(words, made.message)
                self.assertNotIn("\n", made.message)
        made, = outcomes("deqa", deqa("http://127.0.0.1:1"), [item()])
        self.assertIn("does not answer", made.message)


if __name__ == "__main__":
    unittest.main()
