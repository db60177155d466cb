#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Metric names have one home: the tables of src/metrics. Without arguments this checks that it is so.

  - A constant is named as its metric; no name is there twice; a C++ file outside of tests uses every row.
  - C++ outside of tests spells no name: it uses the constants.
  - Tests, scripts, dashboards, alerts, manifests and documents name only metrics that are in the tables.

Prints file:line: what is wrong; exits 1 if anything is. `--print` prints the two tables instead, as Markdown: `make docs`
appends them to docs/formats.md. `--self-test` shows that each rule catches its breach.
"""
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEP_HEADER = "src/metrics/step_metrics.h"
EXPORTED_HEADER = "src/metrics/exported_metrics.h"
PANELS_HEADER = "src/metrics/step_panels.h"
HEADERS = (STEP_HEADER, EXPORTED_HEADER)
STEP_HEAD = "| key | unit | meaning | absent |"
EXPORTED_HEAD = "| name | type | labels | help |"

ROW = re.compile(r"inline constexpr (\w+) (k\w+)\{(.*?)\};", re.DOTALL)
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
PANEL = re.compile(r'\{"([^"]*)", "[^"]*", k(\w+),\s*\{((?:\{[^}]*\},?\s*)+)\},\s*((?:"[^"]*"\s*)+)(, kRare)?')
CURVE = re.compile(r'\{(?:"([^"]*)", |\.each = )&(k\w+)\}')
CPP_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|\'(?:[^\'\\\n]|\\.)*\'|R"(\w*)\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"', re.DOTALL)
# A key of metrics.jsonl, and not a part of a path or of a word.
KEY = re.compile(r"(?<![\w/.\-{])(?:train|eval|buffer|rollout|time|throughput|adaptation|prompts)/[a-zA-Z]\w*(?![\w/.{\-])")
EXPORTED = re.compile(r"\b(?:oxbow_(?:build|disk|learner|rollout|weights|replay|reward|rpc)_\w+|oxbow_step|process_(?:cpu|resident|start)_\w+)\b")
HISTOGRAM_PART = re.compile(r"_(?:bucket|sum|count)$")
# Names of targets, binaries and buckets of storage that begin like a metric.
OTHERWISE = re.compile(r"^oxbow_(?:learner|rollout|weights|replay|reward|rpc)_(?:client|service|store|loop|plan|run|ranks|coordinator|"
                       r"member|probe|broadcast_group|worker|server|convert)\w*$")


@dataclass(frozen=True)
class StepMetric:
    constant: str
    name: str  # With the variable's name in the value's place: train/reward_NAME_mean.
    unit: str
    help: str
    absent: str
    pattern: str  # The form of a key, as a regular expression.


@dataclass(frozen=True)
class Exported:
    constant: str
    name: str
    type: str  # Counter, Gauge or Histogram.
    labels: str
    help: str


@dataclass(frozen=True)
class StepPanel:
    """A chart of a step's numbers; `curves`: (label, StepMetric), without a label for a family."""
    part: str
    title: str
    scale: str
    curves: list
    how_to_read: str
    rare: bool


def tracked(*patterns):
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *patterns], cwd=ROOT, check=True,
                         capture_output=True, text=True).stdout
    return [name for name in out.splitlines() if (ROOT / name).is_file()]


def arguments(body):
    """The string arguments of an initialiser; neighbouring literals are one."""
    gaps = re.split(LITERAL, body)
    made = []
    for gap, text in zip(gaps[::2], gaps[1::2]):
        if not made or "," in gap:
            made.append(text)
        else:
            made[-1] += text
    return made


def step_metrics(text):
    made = []
    for kind, constant, body in ROW.findall(text):
        parts = arguments(body)
        if kind == "StepMetric":
            name, unit, meaning, absent = (parts + [""])[:4]
            made.append(StepMetric(constant, name, unit, meaning, absent, re.escape(name)))
        elif kind == "StepMetricFamily":
            before, variable, after, unit, meaning, absent = (parts + [""])[:6]
            value = r"\d+" if variable == "N" else r"\w+"
            made.append(StepMetric(constant, before + variable + after, unit, meaning, absent,
                                   re.escape(before) + value + re.escape(after)))
    return made


def exported_metrics(text):
    return [Exported(constant, *arguments(body)[:1], kind, *arguments(body)[1:])
            for kind, constant, body in ROW.findall(text) if kind in ("Counter", "Gauge", "Histogram")]


def step_panels(text, rows):
    """The rows of src/metrics/step_panels.h. `rows`: those of step_metrics()."""
    by_constant = {row.constant: row for row in rows}
    made = []
    for part, table in re.findall(r"StepPanel k(\w+)Panels\[\] = \{\n(.*?)\n\};", text, re.DOTALL):
        for title, scale, curves, texts, rare in PANEL.findall(table):
            made.append(StepPanel(part, title, scale,
                                  [(label, by_constant[constant]) for label, constant in CURVE.findall(curves)],
                                  "".join(LITERAL.findall(texts)), bool(rare)))
    if len(made) != len(re.findall(r'^    \{"', text, re.MULTILINE)):
        raise ValueError(f"{PANELS_HEADER}: a row is not of the form that tools/metric_names.py reads")
    return made


def constant_of(name):
    words = re.split(r"[/_]", name.removeprefix("oxbow_"))
    return "k" + "".join(word[:1].upper() + word[1:].lower() for word in words)


def markdown(text):
    return text.replace("|", r"\|")


def label_cells(labels):
    """use: replay, run; table -> `use`: replay, run; `table`"""
    return "; ".join("`" + label.strip().replace(":", "`:", 1) if ":" in label else f"`{label.strip()}`"
                     for label in labels.split(";") if label.strip())


def step_table(rows):
    return [STEP_HEAD, "|---|---|---|---|"] + [
        f"| `{row.name}` | {row.unit} | {markdown(row.help)} | {markdown(row.absent)} |".replace("|  |", "| |")
        for row in rows]


def exported_table(rows):
    return [EXPORTED_HEAD, "|---|---|---|---|"] + [
        f"| `{row.name}` | {row.type[0]} | {label_cells(row.labels)} | {markdown(row.help)} |"
        for row in rows]


def page(names=None):
    """The text that `make docs` appends to docs/formats.md."""
    names = names or read_names()
    return "\n".join(["", "## Keys of metrics.jsonl", "", *step_table(names.step), "", "## Names of Prometheus metrics", "",
                      *exported_table(names.exported), ""])


def is_test(path):
    return path.endswith("_test.cc") or path.startswith("tests/")


def literals(text):
    """(line, content) of every string literal of a C++ file; comments are skipped."""
    for found in CPP_TOKEN.finditer(text):
        token = found.group(0)
        if token.startswith(('"', "R")):
            yield text.count("\n", 0, found.start()) + 1, token


def includes_gone(text):
    return re.sub(r"^[ \t]*#[ \t]*include[^\n]*", "", text, flags=re.MULTILINE)


class Names:
    def __init__(self, step, exported):
        self.step, self.exported = step, exported
        self.families = {row.name: row for row in exported}
        self.key = re.compile("|".join(f"(?:{row.pattern})" for row in step))

    def knows_key(self, key):
        return self.key.fullmatch(key) or key in {row.name for row in self.step}

    def knows_series(self, name):
        bare = HISTOGRAM_PART.sub("", name)
        return name in self.families or (bare in self.families and self.families[bare].type == "Histogram")

    def table_problems(self):
        for row in self.step + self.exported:
            if row.constant != constant_of(row.name):
                yield f"{row.name}: its constant is not {constant_of(row.name)} but {row.constant}"
        names = [row.name for row in self.step + self.exported]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"{name}: there are two rows of this name"
        for row in self.exported:
            if row.type == "Counter" and not row.name.endswith("_total"):
                yield f"{row.name}: a counter ends with _total"

    def spelled(self, text):
        """(line, name) of each metric that a C++ file spells in a string."""
        for line, literal in literals(includes_gone(text)):
            for name in KEY.findall(literal):
                if self.knows_key(name):
                    yield line, name
            for name in EXPORTED.findall(literal):
                if self.knows_series(name):
                    yield line, name

    def unknown(self, text):
        """(line, name) of each name that looks like a metric's and is in no table; a prefix ends with _."""
        for number, line in enumerate(text.split("\n"), 1):
            wrong = [name for name in KEY.findall(line) if not self.knows_key(name)]
            wrong += [name for name in EXPORTED.findall(line)
                      if not self.knows_series(name) and not OTHERWISE.match(name)]
            yield from ((number, name) for name in wrong if not name.endswith("_"))


def cpp_problems(names, files):
    """`files`: path -> text of C++ files."""
    used = set()
    for path, text in files.items():
        if path in HEADERS:
            continue
        if is_test(path):
            kept = "\n".join(token for _, token in literals(includes_gone(text)))
            yield from (f"{path}: no such metric: {name}" for _, name in names.unknown(kept))
            continue
        used |= set(re.findall(r"\b(?:metric|exported)::(k\w+)", text))
        for line, name in names.spelled(text):
            yield f"{path}:{line}: spells {name}: use {constant_of(name)} of src/metrics"
    for row in names.step + names.exported:
        if row.constant not in used and files:
            yield f"{row.name}: no C++ file uses {row.constant}"


def text_problems(names, files):
    """`files`: path -> text of scripts, dashboards, alerts, manifests and documents."""
    for path, text in files.items():
        for line, name in names.unknown(text):
            yield f"{path}:{line}: no such metric: {name}"


def read_names():
    return Names(step_metrics((ROOT / STEP_HEADER).read_text()), exported_metrics((ROOT / EXPORTED_HEADER).read_text()))


def read_panels(names):
    return step_panels((ROOT / PANELS_HEADER).read_text(), names.step)


def self_test():
    names = Names(
        step_metrics('inline constexpr StepMetric kTrainLoss{"train/loss", "1", "a " "b"};\n'
                     'inline constexpr StepMetricFamily kEvalRewardNameMean{"eval/reward_", "NAME", "_mean", "1", "c", "d"};'),
        exported_metrics('inline constexpr Counter kLearnerResultsTotal{\n    "oxbow_learner_results_total", "outcome: a, b", "e|f"};\n'
                         'inline constexpr Histogram kReplayAgeSteps{"oxbow_replay_age_steps", "", "g"};'))
    assert [row.help for row in names.step + names.exported] == ["a b", "c", "e|f", "g"]
    good = {"src/a.cc": '#include "eval/reward_mean"\nx[metric::kTrainLoss] = y[metric::kEvalRewardNameMean.Of(n)];  // "train/loss"\n'
                        "Metric(r, exported::kLearnerResultsTotal, exported::kReplayAgeSteps);\n",
            "src/a_test.cc": 'at("train/loss"); HasSubstr("oxbow_replay_age_steps_count 2");'}
    assert not list(names.table_problems()) and not list(cpp_problems(names, good)), list(cpp_problems(names, good))
    breaches = {"src/b.cc": 'x["train/loss"]', "services/c.h": 'y("oxbow_learner_results_total{outcome=\\"a\\"}")',
                "bench/d.cc": 'x["eval/reward_ocr_mean"]', "src/e_test.cc": 'HasSubstr("oxbow_learner_result_total")'}
    for path, text in breaches.items():
        assert len(list(cpp_problems(names, {**good, path: text}))) == 1, path
    assert list(cpp_problems(names, {**good, "src/a.cc": ""})), "a row without a user"
    assert not list(text_problems(names, {"p.py": 'q("oxbow_learner_results_total") row["train/loss"] train/eval.py'}))
    for text in ('q("oxbow_learner_result_total")', 'row["train/los"]', "rate(oxbow_learner_results_total_bucket[1m])"):
        assert list(text_problems(names, {"p.py": text})), text
    assert all(f"\n{row}\n" in page(names) for row in (
        "| `train/loss` | 1 | a b | |", "| `oxbow_learner_results_total` | C | `outcome`: a, b | e\\|f |")), page(names)
    loss, each = names.step
    assert step_panels('StepPanel kUpdatePanels[] = {\n    {"A", "u", kShare, {{"b", &kTrainLoss}},\n     "c "\n     "d", kRare},\n'
                       '    {"E", "", kFree, {{.each = &kEvalRewardNameMean}},\n     "f"},\n};',
                       names.step) == [StepPanel("Update", "A", "Share", [("b", loss)], "c d", True),
                                       StepPanel("Update", "E", "Free", [("", each)], "f", False)]
    try:
        step_panels('StepPanel kTimePanels[] = {\n    {"A", kFree, {}, "text"},\n};', [])
        assert False, "a row of another form"
    except ValueError:
        pass
    assert list(Names(names.step * 2, []).table_problems()), "two rows of one name"
    assert list(Names([], [Exported("kLearnerResults", "oxbow_learner_results", "Counter", "", "")]).table_problems())


def main():
    self_test()
    names = read_names()
    if "--print" in sys.argv[1:]:
        print(page(names))
        return 0
    cpp = {path: (ROOT / path).read_text() for path in tracked("*.h", "*.cc")}
    others = {path: (ROOT / path).read_text()
              for path in tracked("*.py", "deploy/*.json", "deploy/*.yml", "deploy/*.yaml", "*.md")
              if path != "tools/metric_names.py"}
    problems = [*names.table_problems(), *cpp_problems(names, cpp), *text_problems(names, others)]
    print("\n".join(problems) or f"metric names: {len(names.step)} of a step, {len(names.exported)} on /metrics")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
