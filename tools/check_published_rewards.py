#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `oxbow score` with the published Python packages, on published weights and on pictures of yours.

    check_published_rewards.py --oxbow build/release/bin/oxbow --prompt TEXT PICTURE.png ... \\
        [--pickscore DIR] [--clip DIR] [--aesthetic-head FILE.pth] [--hpsv2 DIR] [--imagereward DIR]
        [--geneval DIR --clip DIR --geneval-images FOLDER --geneval-prompts FILE --geneval-results FILE]
        [--ppocr DIR [--paddle DIR]] [--tolerance 1e-3]
    check_published_rewards.py --oxbow build/release/bin/oxbow --published FOLDER [--imagereward DIR] [--clip-base DIR]

    --pickscore        yuvalkirstain/PickScore_v1 with the tokenizer of CLIP-ViT-H-14-laion2B-s32B-b79K
    --clip             openai/clip-vit-large-patch14
    --aesthetic-head   sac+logos+ava1-l14-linearMSE.pth; needs --clip
    --imagereward      what `oxbow convert-weights` made of ImageReward.pt, with vocab.txt of bert-base-uncased
    --geneval          what `oxbow convert-weights` made of mmdetection's mask2former_swin-s-p4-w7-224_lsj_8x2_50e_coco.
                       The folder is one that GenEval's evaluate_images.py read (`oxbow eval --export-images` writes such),
                       the results are what it wrote, the prompts are its evaluation_metadata.jsonl: shares of right
                       pictures by tag must be equal, so PICTURE and --prompt are not needed
    --ppocr            DIR/det and DIR/rec: models/ppocr_v6_tiny, or PaddlePaddle/PP-OCRv5_server_{det,rec}_safetensors; the prompt has
                       text in double quotes. PaddleOCR runs the networks of the same names: by itself it takes those of its newest version
    --paddle           DIR/det and DIR/rec with inference.onnx and inference.yml, which PaddleOCR runs by onnxruntime; without it
                       PaddleOCR fetches its own
    --published        needs no package of theirs: FOLDER has pictures that projects publish, by their names, and the values
                       that they publish of them are in published_rewards.json beside this script, with their sources. Rows
                       are compared whose model and pictures are there. Nobody publishes scores of pictures for PickScore,
                       HPSv2, the aesthetic predictor, GenEval or PaddleOCR's whole pipeline as Flow-Factory calls it
    --clip-base        openai/clip-vit-base-patch32, for --published
    --hpsv2            what `oxbow convert-weights` made of HPS_v2.1_compressed.pt, with config and tokenizer

Each model that is named is asked, by oxbow and by Python: transformers for the first three, the packages ImageReward,
paddleocr and hpsv2 (which fetch their own checkpoints) for the others. Prints both values and their difference for every picture; exit code 1 if one is
above the tolerance, 2 if nothing is compared. Needs torch, transformers, torchvision, Pillow; hpsv2 for --hpsv2;
ImageReward for --imagereward; paddleocr 3.7, its paddlepaddle (or onnxruntime, with --paddle) and python-Levenshtein for --ppocr.

Where oxbow is built, --ppocr was run on PP-OCRv6 tiny's published weights. The others were not at hand, so all else was run on
random models alone, and without the packages hpsv2 and ImageReward.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile


def oxbow_scores(args, reward, model, keys=()):
    command = [args.oxbow, "score", *args.pictures, "--reward", reward, "--model", str(model), "--prompt", args.prompt, "--json"]
    for key in keys:
        command += ["--set", key]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"oxbow score --reward {reward}: {run.stderr.strip() or run.stdout.strip()}")
    answer = json.loads(run.stdout)
    return answer["identity"], [row["score"] for row in answer["scores"]]


def published(args):
    """Compares with published_rewards.json; returns how many values differ too much, or exits with 2 if none was compared."""
    from PIL import Image
    count, wrong = 0, 0
    for row in json.loads((pathlib.Path(__file__).parent / "published_rewards.json").read_text())["values"]:
        model = getattr(args, row["model"].replace("-", "_"))
        names = [name for name in row["pictures"] if pathlib.Path(args.published, name).exists()]
        if not model or not names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            asked = argparse.Namespace(oxbow=args.oxbow, prompt=row["prompt"],
                                       pictures=[str(pathlib.Path(folder, f"{i}.png")) for i in range(len(names))])
            for name, path in zip(names, asked.pictures):
                Image.open(pathlib.Path(args.published, name)).convert("RGB").save(path)
            identity, scores = oxbow_scores(asked, row["reward"], model, row["keys"])
        print(f"{row['reward']}: {identity}; {row['source']}")
        for name, score in zip(names, scores):
            ours, theirs = score * row["scale"], row["pictures"][name]
            count, wrong = count + 1, wrong + (abs(ours - theirs) > row["tolerance"])
            print(f"  {ours:12.6f} {theirs:12.6f} {ours - theirs:+.2e} of {row['tolerance']:g}  {name}")
    if count == 0:
        sys.exit(2)
    return wrong


def geneval_shares(args):
    """(identity, oxbow's shares of right pictures by tag, those of the official results, tags), tags in order."""
    run = subprocess.run(
        [args.oxbow, "eval", "--set", "geneval", "--prompts", args.geneval_prompts, "--images",
         args.geneval_images, "--key", f"geneval.model={args.geneval}", "--key", f"geneval.head={args.clip}", "--json"],
        capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"oxbow eval: {run.stderr.strip() or run.stdout.strip()}")
    rows = [row for row in json.loads(run.stdout)["rows"] if row["group"] != "overall"]
    official = official_shares(pathlib.Path(args.geneval_results).read_text())
    tags = [row["group"] for row in rows]
    if not tags or set(tags) != set(official):
        sys.exit(f"--geneval-results: its tags {sorted(official)} are not those of --geneval-prompts, {sorted(tags)}")
    return rows[0]["identity"], [row["value"]["mean"] for row in rows], [official[tag] for tag in tags], tags


def official_shares(text):
    """Tag -> share of right pictures, of the lines that evaluate_images.py wrote."""
    correct = {}
    for row in map(json.loads, filter(str.strip, text.splitlines())):
        correct.setdefault(row["tag"], []).append(row["correct"])
    return {tag: sum(values) / len(values) for tag, values in correct.items()}


class Clip:
    """A CLIPModel of transformers with the processor that flow_grpo and Flow-Factory use."""

    def __init__(self, directory):
        import torch
        import transformers
        from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
        self.torch = torch
        self.model = transformers.CLIPModel.from_pretrained(directory, dtype=torch.float32).eval()
        self.tokenizer = transformers.CLIPTokenizer.from_pretrained(directory)
        self.side = self.model.config.vision_config.image_size
        self.processor = CLIPImageProcessorPil(size={"shortest_edge": self.side},
                                               crop_size={"height": self.side, "width": self.side})

    def unit(self, features):
        features = getattr(features, "pooler_output", features)
        return features / features.norm(p=2, dim=-1, keepdim=True)

    def text(self, prompt):
        length = self.model.config.text_config.max_position_embeddings
        ids = self.tokenizer([prompt], padding="max_length", truncation=True, max_length=length, return_tensors="pt")
        return self.unit(self.model.get_text_features(**ids))

    def pictures(self, pictures):
        pixels = [self.processor(picture, return_tensors="pt")["pixel_values"] for picture in pictures]
        return self.unit(self.model.get_image_features(pixel_values=self.torch.cat(pixels)))

    def bilinear(self, pictures):
        """flow_grpo's clip_scorer: floats, torchvision's antialiased bilinear, then the middle."""
        import torchvision.transforms.functional as F
        from torchvision.transforms import InterpolationMode
        mean, std = (.48145466, .4578275, .40821073), (.26862954, .26130258, .27577711)
        pixels = [F.normalize(F.center_crop(F.resize(F.to_tensor(p), self.side, InterpolationMode.BILINEAR, antialias=True),
                                            [self.side, self.side]), mean, std) for p in pictures]
        return self.unit(self.model.get_image_features(pixel_values=self.torch.stack(pixels)))

    def cosines(self, prompt, features):
        return (self.text(prompt) * features).sum(-1)


def aesthetic_head(path, features):
    """The linear layers of the predictor, one after the other; dropout does nothing here."""
    import torch
    state = {k.removeprefix("layers."): v.float() for k, v in torch.load(path, map_location="cpu", weights_only=True).items()}
    for number in sorted({int(key.split(".")[0]) for key in state}):
        features = features @ state[f"{number}.weight"].T + state[f"{number}.bias"]
    return features.squeeze(1)


def paddle_name(directory):
    """PaddleOCR's name of the network in a directory: "PP-OCRv6_tiny_det"."""
    config = json.loads(pathlib.Path(directory, "config.json").read_text())
    version, size, part = re.fullmatch(r"pp_ocr(v\d)_(\w+)_(det|rec)", config["model_type"]).groups()
    # One class for two sizes: the small detector's neck has 96 channels, the small recogniser's 120.
    if (part, config.get("neck_out_channels")) == ("det", 64) and size == "small":
        size = "tiny"
    if (part, config.get("hidden_size")) == ("rec", 192) and size == "small":
        size = "medium"
    return f"PP-OCR{version}_{size}_{part}"


def flow_factory_ocr(prompt, pictures, names, paddle=None):
    """Flow-Factory's reward of the text in quotation marks, by PaddleOCR 3 with the networks of these names (detector, recogniser)."""
    import numpy
    from Levenshtein import distance
    from paddleocr import PaddleOCR
    here = {} if paddle is None else dict(text_detection_model_dir=str(pathlib.Path(paddle, "det")),
                                          text_recognition_model_dir=str(pathlib.Path(paddle, "rec")), engine="onnxruntime")
    reader = PaddleOCR(text_detection_model_name=names[0], text_recognition_model_name=names[1], use_doc_orientation_classify=False,
                       use_doc_unwarping=False, use_textline_orientation=False, **here)
    target = prompt.split('"')[1].replace(" ", "").lower()
    for picture in pictures:
        read = "".join("".join(page["rec_texts"]) for page in reader.predict(numpy.array(picture))).replace(" ", "").lower()
        edits = 0 if target in read else min(distance(read, target), len(target))
        yield 1 - edits / len(target)


def comparisons(args, pictures):
    """Yields name, oxbow's identity and scores, Python's scores, and what each of them is of."""
    if args.pickscore:
        clip = Clip(args.pickscore)
        wanted = clip.model.logit_scale.exp() * clip.cosines(args.prompt, clip.pictures(pictures)) / 26
        yield "pickscore", *oxbow_scores(args, "pickscore", args.pickscore), wanted.tolist(), args.pictures
    if args.geneval:
        yield "geneval", *geneval_shares(args)
    if args.clip and pictures:
        clip = Clip(args.clip)
        features = clip.pictures(pictures)
        scale = clip.model.logit_scale.exp()
        wanted = {"flow_grpo": scale * clip.cosines(args.prompt, clip.bilinear(pictures)) / 30,
                  "flow_factory": clip.cosines(args.prompt, features),
                  "hessel": 2.5 * clip.cosines("A photo depicts " + args.prompt, features).clamp(min=0)}
        for variant, values in wanted.items():
            ours = oxbow_scores(args, "clipscore", args.clip, [f"variant={variant}"])
            yield f"clipscore {variant}", *ours, values.tolist(), args.pictures
        if args.aesthetic_head:
            with tempfile.TemporaryDirectory() as folder:
                head = pathlib.Path(folder, "head.safetensors")
                subprocess.run([args.oxbow, "convert-weights", args.aesthetic_head, str(head)], check=True,
                               stdout=subprocess.DEVNULL)
                ours = oxbow_scores(args, "aesthetic", args.clip, [f"head={head}"])
            yield "aesthetic", *ours, aesthetic_head(args.aesthetic_head, features).tolist(), args.pictures
    if args.imagereward:
        import ImageReward
        model = ImageReward.load("ImageReward-v1.0")
        wanted = [float(model.score(args.prompt, path)) for path in args.pictures]
        yield "imagereward", *oxbow_scores(args, "imagereward", args.imagereward), wanted, args.pictures
    if args.ppocr:
        names = [paddle_name(pathlib.Path(args.ppocr, part)) for part in ("det", "rec")]
        wanted = list(flow_factory_ocr(args.prompt, pictures, names, args.paddle))
        yield f"ocr, {' and '.join(names)}", *oxbow_scores(args, "ocr", args.ppocr, ["engine=ppocr"]), wanted, args.pictures
    if args.hpsv2:
        import hpsv2
        wanted = [float(hpsv2.score(picture, args.prompt, hps_version="v2.1")[0]) for picture in pictures]
        yield "hpsv2", *oxbow_scores(args, "hpsv2", args.hpsv2), wanted, args.pictures


def compare(compared, tolerance):
    """Prints every row of `comparisons`; the exit code: 0, 1 if a difference is above the tolerance, 2 without any row."""
    count, worst = 0, 0.0
    for name, identity, ours, wanted, labels in compared:
        print(f"{name}: {identity}")
        for label, a, b in zip(labels, ours, wanted, strict=True):
            print(f"  {a:12.6f} {b:12.6f} {a - b:+.2e}  {label}")
            count, worst = count + 1, max(worst, abs(a - b) if a == a and b == b else float("inf"))
    print(f"{count} values, largest difference {worst:.2e}, tolerance {tolerance:g}" if count else "nothing was compared")
    return 2 if count == 0 else 1 if worst > tolerance else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", nargs="*", help="PNG files")
    parser.add_argument("--oxbow", default="oxbow")
    parser.add_argument("--prompt")
    parser.add_argument("--pickscore")
    parser.add_argument("--clip")
    parser.add_argument("--aesthetic-head")
    parser.add_argument("--hpsv2")
    parser.add_argument("--imagereward")
    for name in ("", "-images", "-prompts", "-results"):
        parser.add_argument(f"--geneval{name}")
    parser.add_argument("--ppocr")
    parser.add_argument("--paddle", metavar="DIR")
    parser.add_argument("--clip-base")
    parser.add_argument("--published", metavar="FOLDER")
    parser.add_argument("--tolerance", type=float, default=1e-3)
    args = parser.parse_args()
    if args.published:
        sys.exit(1 if published(args) else 0)
    if args.aesthetic_head and not args.clip:
        parser.error("--aesthetic-head needs --clip")
    if not (args.pickscore or args.clip or args.hpsv2 or args.imagereward or args.ppocr or args.geneval):
        parser.error("name a model: --pickscore, --clip, --hpsv2, --imagereward, --ppocr or --geneval")
    if args.geneval and not (args.clip and args.geneval_images and args.geneval_prompts and args.geneval_results):
        parser.error("--geneval needs --clip, --geneval-images, --geneval-prompts and --geneval-results")
    of_pictures = args.pickscore or args.hpsv2 or args.imagereward or args.ppocr or args.aesthetic_head
    if (of_pictures or not args.geneval) and not (args.pictures and args.prompt):
        parser.error("give PICTURE.png ... and --prompt")
    import torch
    from PIL import Image
    pictures = [Image.open(path).convert("RGB") for path in args.pictures]
    with torch.no_grad():
        sys.exit(compare(comparisons(args, pictures), args.tolerance))


if __name__ == "__main__":
    main()
