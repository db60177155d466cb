# SPDX-License-Identifier: Apache-2.0
"""The way of a stranger with one model: from fetching it to its exports."""
import json
import re
import subprocess
import sys
import time

import yaml
from PIL import Image

import adapters
import pages
from findings import says, within
from world import HELD_OUT, ROOT

MEGABYTE = 1e6
SILENCE_MAX = 10  # Seconds.
CELL_MIN = 150  # Pixels of the shorter side of a picture in a grid; a click shows the whole one.
FORMATS = ("diffusers", "peft", "comfyui", "merged")
SIZE = {"sd3": (512, 512), "flux": (512, 512), "wan": (416, 240)}
# The recipe that a run of three steps follows, and the settings that it makes smaller.
RECIPES = {"sd3": "sd35m", "flux": "flux-dev", "wan": "wan21"}
SMALLER = {
    "model": {"device": "cpu", "compute_dtype": "f32", "encoder_dtype": "f32", "encoder_device": "cpu", "memory": "fast"},
    "sampling": {"steps": 3, "sde_count": 2}, "batch": {"groups": 2, "group_size": 4, "updates": 1},
    "eval": {"every": 3, "steps": 2}, "checkpoint": {"every": 1}}
OWN = {"sd3": {"eval": {"images": HELD_OUT}, "batch": {"group_size": 6}}, "flux": {"eval": {"images": 8}, "optimizer": {"learning_rate": 1e-9}},
       "wan": {"sampling": {"frames": 17}, "eval": {"images": 2}, "batch": {"groups": 1}}}


def merged(*parts):
    result = {}
    for part in parts:
        for key, value in part.items():
            result[key] = merged(result.get(key, {}), value) if isinstance(value, dict) else value
    return result


class Walk:
    def __init__(self, world, findings, name, endpoint):
        self.world, self.findings, self.name = world, findings, name
        self.file = f"{name}.yaml"
        self.directory = world.folder / "runs" / name
        self.images = merged(SMALLER, OWN[name])["eval"]["images"]
        lora = {"rank": adapters.RANK, "alpha": adapters.ALPHA, "targets": adapters.TARGETS[name]}
        if "lora" not in world.without:
            lora["path"] = f"{name}_lora.safetensors"
        path = str(world.model(name)) if name == "wan" else f"somebody/narrow-{name}"  # The others come from the Hub.
        self.settings = merged(SMALLER, OWN[name], {
            "recipe": RECIPES[name], "run": {"name": name, "steps": 3}, "model": {"path": path, "lora": lora},
            "prompts": {"train": "train.txt", "eval": "eval.txt"},
            "reward": {"terms": [{"name": "redness", "weight": 1}], "scorers": [], "endpoints": [endpoint]}})
        (world.folder / self.file).write_text(yaml.safe_dump(self.settings))

    def see(self, what):
        return self.findings.see(f"{self.name}: {what}")

    def fetch(self):
        with self.see("fetch --print names the command that gets the model"):
            says(self.world.oxbow("fetch", self.file, "--print").text, f"hf download somebody/narrow-{self.name}")
            assert not list(self.world.hub.glob(f"*narrow-{self.name}")), "it was fetched"
        with self.see("fetch gets the model by its id"):
            told = self.world.oxbow("fetch", self.file)
            assert told.code == 0, told.text
            says((self.world.folder / "fetched").read_text(), f"somebody/narrow-{self.name}")
        if not list(self.world.hub.glob(f"*narrow-{self.name}/snapshots/*")):
            self.world.put_into_hub(self.name)

    def validate(self):
        with self.see("validate takes the run as it is: their LoRA, their reward, their prompts"):
            told = self.world.oxbow("validate", self.file)
            assert told.code == 0, told.text
            within(told.seconds, 0, SILENCE_MAX, "seconds")
        if self.name != "wan":  # Its encoder reads 512 tokens.
            with self.see("validate says that prompts are longer than the encoder reads, and how many"):
                says(told.text, "tokens", ("cut", "longer"))
        with self.see("validate has no word of digits"):
            assert not pages.digit_words(told.text), pages.digit_words(told.text)

    def train(self):
        with self.see("train ends well, with its three steps"):
            told = self.world.oxbow("train", self.file)
            assert told.code == 0, told.end
            self.check_steps()
        self.check_terminal(told)

    def train_killed_and_moved(self):
        """The run ends as in a power cut behind its first step, is moved, and goes on."""
        with self.see("train commits a step"):
            train = self.world.start("train", self.file)
            until = time.monotonic() + 150
            while train.running and time.monotonic() < until and not self.has_checkpoint():
                time.sleep(0.05)
            reached = self.has_checkpoint()
            train.kill()
            train.wait()
            assert reached, train.end
        self.check_terminal(train)
        elsewhere = f"another/place/{self.name}-renamed"
        with self.see("resume goes on with a run that was killed, renamed and moved"):
            self.world.move(self.directory, elsewhere)
            self.directory = self.world.folder / elsewhere
            told = self.world.oxbow("resume", elsewhere)
            assert told.code == 0, told.end
            self.check_steps()
        with self.see("resume says the step that it goes on from"):
            said = re.search(r"resumed at step (\d+)", told.text)
            assert said and said[1] in "123" and said[1] != "0", told.end
        self.check_terminal(told)
        if self.directory.exists() and len(self.lines()) < 4:  # The rest of the walk wants an ended run.
            self.world.move(elsewhere, f"runs/{self.name}")
            self.directory = self.world.folder / "runs" / self.name
            self.world.oxbow("train", self.file, "--resume")
            self.world.oxbow("report", self.directory)

    def has_checkpoint(self):
        return any(step["step"] >= 1 for step in self.lines()) and any(self.directory.glob("checkpoints/*/manifest.json"))

    def lines(self):
        path = self.directory / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []

    def check_steps(self):
        steps = [line["step"] for line in self.lines()]
        assert steps == [0, 1, 2, 3], f"metrics.jsonl has the steps {steps}"
        assert "eval/reward_mean" in self.lines()[0] and "eval/reward_mean" in self.lines()[-1], "no held-out reward"

    def check_terminal(self, told):
        with self.see("the terminal has something new at least every 10 s"):
            seconds, meanwhile = told.silence
            assert seconds <= SILENCE_MAX, f"{seconds:.0f} s of: {meanwhile}"
        with self.see("the terminal has no word of digits"):
            assert not pages.digit_words(told.text), pages.digit_words(told.text)

    def check_files(self):
        with self.see(f"an evaluation of {self.images} writes less than 12 MB, pictures included"):
            parts = [path for path in self.directory.rglob("*") if path.is_file() and
                     (path.parent.parent.name == "samples" or "tfevents" in path.name)]
            size = sum(path.stat().st_size for path in parts) / 2  # Two evaluations.
            assert parts and size < 12 * MEGABYTE, f"{size / MEGABYTE:.1f} MB each"
        with self.see("every picture of an evaluation is a file of its full size, with its prompt, rewards and seed"):
            for step in (0, 3):
                self.check_pictures(self.directory / f"samples/step_{step:06d}")

    def check_pictures(self, folder):
        rows = [json.loads(line) for line in (folder / "eval.jsonl").read_text().splitlines()]
        assert len(rows) == self.images, f"eval.jsonl has {len(rows)} lines"
        assert [row["prompt"] for row in rows] == self.world.prompts("eval", self.images), "prompts are not whole, or in another order"
        for row in rows:
            assert Image.open(folder / row["picture"]).size == SIZE[self.name], row["picture"]
            if self.name == "wan":  # The frames that the report plays, below each other.
                width, height = SIZE[self.name]
                assert Image.open(folder / row["film"]).size == (width, height * row["film_frames"]), row["film"]
            assert isinstance(row["seed"], str) and row["rewards"]["redness"] is not None, row

    def check_report(self):
        path = self.directory / "report.html"
        page = path.read_text() if path.exists() else ""
        with self.see("the report shows every picture before and after, as large as a person needs"):
            assert page, "no report.html"
            seen = pages.count(pages.cells(page), CELL_MIN)
            assert seen >= 2 * self.images, f"{seen} pictures of {2 * self.images}; cells: {pages.cells(page)[:1]}"
        with self.see("the report opens every picture at its full size"):
            full = pages.embedded(page) + pages.beside(page, self.directory)
            assert sum(size == SIZE[self.name] for size in full) >= 2 * self.images, f"sizes: {sorted(set(full))[-3:]}"
        with self.see("the report is smaller than 6 MB"):
            within(len(page.encode()) / MEGABYTE, 0.02, 6, "MB")
        with self.see("the report has the whole prompts, in any script"):
            words = " ".join(pages.words_of(page).split()) + page
            missing = [one for one in self.world.prompts("eval", self.images) if " ".join(one.split()) not in words]
            assert not missing, f"{len(missing)} of {self.images} are missing: {missing[0][:120]}"
        with self.see("the report says that videos play"):
            assert ("These are videos" in page) == (self.name == "wan")
        with self.see("the report has no word of digits"):
            assert page, "no report.html"
            assert not pages.digit_words(pages.words_of(page)), pages.digit_words(pages.words_of(page))[:4]
        with self.see("the verdict of three steps is that it is too early to say"):
            says(pages.words_of(page), "too early to say")

    def check_status(self):
        with self.see("status and runs know the ended run, without a word of digits"):
            for words in (("status", "--run", self.directory), ("runs", self.directory.parent)):
                told = self.world.oxbow(*words)
                assert told.code == 0, told.text
                says(told.text, "3")
                assert not pages.digit_words(told.text), pages.digit_words(told.text)

    def check_watch(self):
        page = ""
        with self.see("watch serves every picture at its full size"):
            watch = self.world.start("watch", self.directory, "--port", "0")
            try:
                until = time.monotonic() + 30
                while watch.running and time.monotonic() < until and not re.search(r"http://\S+", watch.text):
                    time.sleep(0.05)
                address = re.search(r"http://\S+", watch.text)
                assert address, watch.text
                page, sizes = pages.served(address[0])
            finally:
                watch.stop()
            full = sum(size == SIZE[self.name] for size in sizes)
            assert full >= 2 * self.images, f"{full} of {2 * self.images}; sizes {sorted(set(sizes))[-3:]}"
        with self.see("the page of watch has no word of digits"):
            assert page, "no page"
            assert not pages.digit_words(pages.words_of(page)), pages.digit_words(pages.words_of(page))[:4]

    def check_compare(self, other):
        page = ""
        with self.see(f"compare shows its pictures beside those of {other.name}"):
            told = self.world.oxbow("compare", self.directory, other.directory, "--out", "both.html")
            assert told.code == 0, told.text
            page = (self.world.folder / "both.html").read_text()
            seen = pages.count(pages.embedded(page) + pages.beside(page, self.world.folder), 200)
            least = min(self.images, other.images)
            assert seen >= 2 * least, f"{seen} of at least {2 * least} pictures"
        with self.see("compare has no word of digits"):
            assert page, "no page"
            assert not pages.digit_words(pages.words_of(page)), pages.digit_words(pages.words_of(page))[:4]

    def check_sample(self):
        with self.see("sample writes the pictures themselves beside its sheet"):
            (self.world.folder / f"drawn-{self.name}").mkdir()
            told = self.world.oxbow("sample", "--run", self.directory, "--prompt", self.world.prompts("eval")[1], "--count", "2",
                                    "--out", f"drawn-{self.name}/sheet.png")
            assert told.code == 0, told.text
            sizes = [Image.open(path).size for path in (self.world.folder / f"drawn-{self.name}").rglob("*.*") if path.suffix != ".txt"]
            assert sizes.count(SIZE[self.name]) >= 2, f"sizes: {sizes}"

    def check_python(self):
        with self.see("Python reads the pictures of an evaluation as a table"):
            code, text = self.world.run_python("-c", PICTURES.format(directory=self.directory))
            assert code == 0, text
            table = json.loads(text.splitlines()[-1])
            assert len(table) == self.images and all(tuple(row["size"]) == SIZE[self.name] for row in table), table[:2]
            assert [row["prompt"] for row in table] == self.world.prompts("eval", self.images), "other prompts"
            assert all(isinstance(row["rewards"]["redness"], float) and isinstance(row["seed"], int) for row in table), table[:2]

    def check_wandb(self):
        with self.see("W&B gets one picture for each prompt, with the whole prompt and its rewards"):
            folder = self.world.folder / f"wandb-{self.name}"
            folder.mkdir()
            code, text = self.world.run_python("-m", "oxbow.follow.command", self.directory, "--to", "wandb", "--offline", "--once",
                                               "--directory", folder)
            assert code == 0, text
            media = [path for path in folder.rglob("media/images/**/*") if path.is_file()]
            full = [path for path in media if Image.open(path).size == SIZE[self.name]]
            assert len(full) >= 2 * self.images, f"{len(full)} of {2 * self.images} pictures"
            size = sum(path.stat().st_size for path in media) / 2
            assert size < 12 * MEGABYTE, f"{size / MEGABYTE:.1f} MB for each evaluation"
            stored = b"".join(path.read_bytes() for path in folder.rglob("run-*.wandb"))
            for prompt in self.world.prompts("eval", self.images):
                quoted = json.dumps(prompt)[1:-1]
                assert any(form.encode() in stored for form in (quoted, quoted.replace("\\", "\\\\"), prompt)), f"not whole: {prompt[:80]}"

    def check_exports(self):
        out = self.world.folder / f"exports-{self.name}"
        for form in FORMATS:
            with self.see(f"export writes {form}"):
                told = self.world.oxbow("export", self.directory, "--format", form, "--out", out / form)
                assert told.code == 0, told.text
        with self.see("diffusers and PEFT load the exports, and all give the same velocity"):
            model = self.world.model(self.name)
            done = subprocess.run([sys.executable, ROOT / "tools/check_exported_adapter.py", "run", model, out], env=self.world.environment,
                                  cwd=ROOT / "tools", capture_output=True, text=True, timeout=200, check=False)
            assert done.returncode == 0, (done.stdout + done.stderr)[-1500:]
        with self.see("merged, as a whole model, draws in diffusers"):
            told = self.world.oxbow("export", self.directory, "--format", "merged", "--whole-model", "--out", out / "whole")
            assert told.code == 0, told.text
            assert adapters.PIPELINES[self.name].from_pretrained(str(out / "whole")).transformer is not None

    def check_lora_came_through(self):
        """This run's rate is so low that its adapter stays as it came."""
        with self.see("their LoRA is what the run started from: it leaves as diffusers reads it"):
            theirs = adapters.update_of(self.name, self.world.model(self.name), self.world.folder / f"{self.name}_lora.safetensors")
            ours = adapters.update_of(self.name, self.world.model(self.name), self.world.folder / f"exports-{self.name}/diffusers")
            assert sorted(theirs) == sorted(ours), f"modules: {sorted(set(theirs) ^ set(ours))[:4]}"
            for module, value in theirs.items():
                error = (ours[module] - value).abs().max().item() / value.abs().max().item()
                assert error < 1e-3, f"{module}: {error:.1e}"


PICTURES = """
import json
from oxbow import Run
table = Run({directory!r}.__str__()).pictures(3)
rows = [dict(prompt=row.prompt, rewards=dict(row.rewards), seed=int(row.seed), size=row.image.size) for row in table.itertuples()]
print(json.dumps(rows))
""".replace("{directory!r}.__str__()", "'{directory}'")
