# SPDX-License-Identifier: Apache-2.0
"""The steps of run.py, most telling first, and the figure that each of their numbers was predicted to be.

Predictions of times are counts at 2.6 TB/s and 700 TFLOP/s, or figures of an H100 of 2026-11-22 (docs/lab/gpu.md). An
H200 has the same products and 1.4 times the memory's bandwidth.
"""
import dataclasses

BENCH, DECODER = "{root}/bin/graph_bench", "{root}/bin/decoder_bench"
GRAPHS, TINY = "{root}/graphs/", "{root}/goldens/exported/"
ATTENTION = "to_q,to_k,to_v,to_out.0"


@dataclasses.dataclass(frozen=True)
class Figure:
    """A number that a step prints: the last match of `pattern`, whose group is the number."""
    name: str
    pattern: str
    low: float | None = None  # The prediction's; none: nothing was predicted.
    high: float | None = None
    unit: str = "ms"


@dataclasses.dataclass(frozen=True)
class Step:
    name: str
    command: list
    seconds: int  # At most.
    figures: list
    gpus: int = 1
    environment: dict = dataclasses.field(default_factory=dict)


def line(name, label, low=None, high=None):
    """A figure of graph_bench or decoder_bench."""
    return Figure(name, rf"(?m)^{label} +([\d.]+) ms", low, high)


def mfu(name, label, low, high):
    return Figure(name, rf"(?m)^{label} .*MFU ([\d.]+)", low, high, "%")


def rate(name, label, low=None, high=None):
    """A figure of ceilings.py."""
    return Figure(name, label + r" +\S+ ms +(\d+) TFLOP/s", low, high, "TFLOP/s")


MEMORY = Figure("memory at most", r"(?m)^memory +([\d.]+) MiB", unit="MiB")
KERNELS = Figure("a forward pass's kernels", r"(?s)^.*?([\d.]+) ms in \d+ kernels", unit="ms")


def passes(graph, tiny, smoke, size, flags=(), shared=("--repeat", "10", "--peak-tflops", "989")):
    """graph_bench of a published graph; of a tiny one in a smoke test, with the same flags. `size`: flag to value."""
    if smoke:
        graph, shared = TINY + tiny + "/graph.json.gz", ("--repeat", "1", "--peak-tflops", "989")
        least = {"--rows": 2, "--height": 64, "--width": 64, "--frames": 5, "--prompt-tokens": 8}
        size = {flag: min(value, least[flag]) for flag, value in size.items()}
    else:
        graph = GRAPHS + graph
    sizes = [str(word) for pair in size.items() for word in pair]
    return [BENCH, graph, "--device", "{device}", "--compute", "bf16", *sizes, *shared, *flags]


def sd35m(rows, smoke, *flags):
    size = {"--rows": rows, "--height": 512, "--width": 512, "--prompt-tokens": 205}
    return passes("SD3Transformer2DModel-sd3.5-medium.json.gz", "sd3_tiny", smoke, size, flags)


def tests_of(program, seconds, gpus=1):
    return Step(program, ["{root}/bin/" + program, "--gtest_brief=1"], seconds,
                [Figure("cases passed", r"\[  PASSED  \] (\d+) test", unit=""),
                 Figure("cases failed", r"(?m)^ *(\d+) FAILED TEST", unit="")], gpus)


def fleets(names, smoke, gpus=1):
    """Runs of all services on the device, beside those that the CPU has made where this was packed."""
    carried = {"bf16", "lora", "flux"} & set(names)
    command = ["{python}", "{root}/fleets.py", "{root}", "--device", "{device}", "--jobs", "2", "--only", *names]
    command += ["--cpu-results", "{root}/cpu"] if carried else []
    return Step("fleets " + " ".join(names), command, 150,
                [Figure("fleets agree with the CPU", r"fleets: (\d+) passed", len(names), len(names), ""),
                 Figure("fleets do not", r"fleets: \d+ passed, (\d+) failed", 0, 0, "")], gpus)


def peer(smoke, *flags):
    size = ["--layers", "1", "--rows", "1", "--pixels", "64", "--repeat", "1"] if smoke else ["--rows", "8"]
    return ["{python}", "{root}/sd35m_diffusers.py", "--device", "{device}", *size, *flags]


def steps(smoke=False):
    """In the order of what they tell. Of a smoke test all are tiny, and have ten times as long, since a CPU may be busy."""
    made = [tests_of("gpu_test", 120), *networks(smoke), *peers_and_limits(smoke)]
    return [dataclasses.replace(step, seconds=10 * step.seconds) for step in made] if smoke else made


def networks(smoke):
    profile = ("--profile", "30")
    image = {"--rows": 4, "--height": 512, "--width": 512, "--prompt-tokens": 512}
    clip = {"--rows": 1, "--height": 480, "--width": 832, "--frames": 33, "--prompt-tokens": 512}
    frozen = ("--targets", ATTENTION, "--recompute", *profile)
    return [
        Step("SD3.5-M, 18 rows", sd35m(18, smoke, "--without-adapter", *profile), 60, [
            line("forward", "forward", 95, 110), line("forward, no adapter", "forward, no adapter", 81, 95),
            line("training step", "training step", 265, 280), mfu("of the step", "training step", 30, 36),
            line("both passes, no adapter", "both passes, no adapter", 225, 245), KERNELS, MEMORY]),
        Step("SD3.5-M, 8 rows", sd35m(8, smoke, *profile), 40, [
            line("forward", "forward", 48, 52), line("forward, graph", "forward, graph", 46, 47),
            line("training step", "training step", 135, 175), KERNELS, MEMORY]),
        Step("FLUX.1-dev, 4 rows of 512 px", passes("FluxTransformer2DModel-flux.1-dev.json.gz", "flux_dev_tiny", smoke,
                                                   image, frozen), 90, [
            line("forward", "forward", 150, 165), mfu("of the forward pass", "forward", 53, 58),
            line("training step, recomputed", "training step"), KERNELS, MEMORY]),
        Step("Wan2.1 1.3B, 33 frames of 480p", passes("WanTransformer3DModel-wan2.1-t2v-1.3b.json.gz", "wan_tiny", smoke,
                                                     clip, frozen), 60, [
            line("forward", "forward", 135, 150), mfu("of the forward pass", "forward", 49, 55),
            line("training step, recomputed", "training step"), KERNELS, MEMORY]),
    ]


def peers_and_limits(smoke):
    decode = ["--rows", "1", "--height", "8", "--width", "8", "--repeat", "1"] if smoke else [
        "--rows", "24", "--repeat", "5", "--peak-tflops", "989", "--profile", "10"]
    return [
        Step("ceilings", ["{python}", "{root}/ceilings.py", "--device", "{device}"] + (["--tiny"] if smoke else []), 90, [
            Figure("product of 8192", r"(?m)^product \d+\^3 bf16.* (\d+) TFLOP/s", 750, 810, "TFLOP/s"),
            Figure("copy", r"(?m)^copy.* ([\d.]+) TB/s", 2.6, 4.4, "TB/s"),
            rate("attention of SD3.5-M", "(?m)^attention SD3.5-M, 18 rows, default", 330, 420),
            rate("attention of Wan", "(?m)^attention Wan.*, default", 580, 640),
            rate("attention with a mask, Qwen-Image", "(?m)^attention Qwen-Image.* masked, default"),
            rate("MLP in fp8, 18 rows", "(?sm)^18 rows, image: one.*?in fp8, a scale a row")]),
        Step("SD3.5-M, 48 rows, forward", sd35m(48, smoke, "--forward-only", "--no-graph"), 40, [
            line("forward", "forward", 255, 265), mfu("of the forward pass", "forward", 40, 43)]),
        Step("decoder, 24 of 512 px", [DECODER, "{root}/graphs/AutoencoderKL-sd3.json.gz", "--device", "{device}", *decode], 45, [
            line("float32", "decode, f32", 300, 500), line("bf16", "decode, bf16", 150, 300),
            Figure("pixels differ at most by", r"apart by .* ([\d.]+) at most", unit="of 255")]),
        Step("diffusers, eager", peer(smoke), 60, [
            line("forward", "forward", 125, 135), line("training step", "training step", 230, 250)]),
        fleets(["bf16", "flux"], smoke),
        Step("diffusers, compiled", peer(smoke, "--compile"), 150, [
            line("forward", "forward", 80, 90), line("training step", "training step", 165, 185)]),
        tests_of("nccl_ranks_test", 60, gpus=2),
        fleets(["ranks", "broadcast"], smoke, gpus=2),
    ]
