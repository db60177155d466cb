# SPDX-License-Identifier: Apache-2.0
"""Decoders against the pipelines: the latents that a diffusers pipeline ends with, and what its autoencoder makes of them."""
import contextlib

import diffusers
import torch

from export_model import interpreter
from export_model.graph_file import exported_graph
from export_model.pipeline_check import PIPELINES
from export_model.self_check import VELOCITY_MAX, network_error, randomised
from export_model.tracing import ExportError, example_inputs, make_transformer
from export_model.wrapper import replaced
from export_model.wrappers import TINY, WRAPPERS
from export_model.wrappers.decoders import without_noise

# Autoencoder -> (a small model whose pipeline decodes with it, the keys of its channels, channels per latent channel,
# the least side of a picture).
USES = {
    "AutoencoderKL": ("flux_schnell_tiny", ("in_channels",), 4, 16),
    "AutoencoderKLFlux2": ("flux2_klein_tiny", ("in_channels",), 4, 16),
    "AutoencoderKLHunyuanVideo": ("hunyuan_video_tiny", ("in_channels", "out_channels"), 1, 16),
    "AutoencoderKLLTXVideo": ("ltx_tiny", ("in_channels", "out_channels"), 1, 32),
    "AutoencoderKLWan": ("wan_tiny", ("in_channels", "out_channels"), 1, 16),
    "AutoencoderKLQwenImage": ("qwen_image_tiny", ("in_channels",), 4, 16)}


def drawn(wrapper, config, seed):
    """An autoencoder with weights, statistics of latents among them, that float16 holds exactly."""
    vae, generator = randomised(make_transformer(wrapper, config), seed), torch.Generator().manual_seed(seed)
    for name, tensor in vae.state_dict(keep_vars=True).items():
        if not isinstance(tensor, torch.nn.Parameter) and tensor.is_floating_point():
            noise = torch.randn(tensor.shape, generator=generator)
            tensor.data = 0.5 + noise.abs() if name.endswith(("var", "std")) else 0.3 * noise
        if name.endswith("gamma"):  # Factors near one: a small model with others multiplies roundings.
            tensor.data = 1 + 0.3 * tensor.data
        if tensor.is_floating_point():
            tensor.data = tensor.data.half().float()
    return vae


def sizes_of(vae, wrapper, rows, frames, height, width):
    """Sizes of latents for a picture of so many least sides."""
    space, least = wrapper.decoder(vae)["space"], USES[type(vae).__name__][3]
    side = max(least, space) // space
    return {"B": rows, "F": frames, "H": side * height, "W": side * width, "S": 5}


@contextlib.contextmanager
def shifted(vae):
    """Without a shift of its own an autoencoder has shift 0: today's pipelines add one to every latent."""
    if vae.config.get("shift_factor", 0.0) is None:
        with replaced(vae, "_internal_dict", type(vae.config)({**vae.config, "shift_factor": 0.0})):
            yield
    else:
        yield


def decoded(vae, sizes, seed):
    """(latents, pixels) of one call of the pipeline: as the scheduler's last step gave them, and not yet clamped."""
    name, keys, packing, _ = USES[type(vae).__name__]
    class_name, config = TINY[name]
    wrapper, pipeline = WRAPPERS[class_name], PIPELINES[name][0]
    config = config | dict.fromkeys(keys, packing * (vae.config.get("latent_channels") or vae.config.z_dim))
    transformer = randomised(make_transformer(wrapper, config), seed)
    shapes = {key: [sizes.get(size, size) for size in shape] for key, shape in wrapper.inputs(transformer.config).items()}
    inputs, scheduler = example_inputs(wrapper, shapes, seed), pipeline.scheduler()
    missing = dict.fromkeys(part for part in pipeline.missing if part != "vae")
    made = getattr(diffusers, pipeline.name)(transformer=transformer, scheduler=scheduler, vae=vae, **missing)
    made.set_progress_bar_config(disable=True)
    kept, step, decode = {}, scheduler.step, vae.decode

    def recording_step(*args, **kwargs):
        kept["latents"] = step(*args, **kwargs)
        return kept["latents"]

    def recording_decode(*args, **kwargs):
        kept["pixels"] = decode(*args, **kwargs)
        return kept["pixels"]

    made_of = WRAPPERS[type(vae).__name__].decoder(vae)
    size = {key: sizes[symbol] * made_of["space"] for key, symbol in (("height", "H"), ("width", "W"))}
    if pipeline.frames:
        # Where every latent frame is one picture, WanPipeline rounds its number up.
        size["num_frames"] = (sizes["F"] - 1) * made_of["time"] + (made_of["time"] > 1)
    noise = without_noise(vae) if hasattr(vae.config, "decoder_inject_noise") else contextlib.nullcontext()
    with replaced(scheduler, "step", recording_step), replaced(vae, "decode", recording_decode), noise, shifted(vae), torch.no_grad():
        made(**pipeline.arguments(inputs), **size, num_inference_steps=2, output_type="pt",
             generator=torch.Generator().manual_seed(seed))
    latents, pixels = pipeline.latents(kept["latents"][0], inputs), kept["pixels"][0]
    return latents, pixels.squeeze(2) if latents.dim() == 4 else pixels


def check_decoder(name, seed=0):
    """One line, or ExportError. The frames of a video are those that need no cut."""
    class_name, config = TINY[name]
    wrapper, errors = WRAPPERS[class_name], []
    graph = exported_graph(wrapper, make_transformer(wrapper, config, fake=True))
    vae = drawn(wrapper, config, seed)
    for rows, frames, height, width in ((2, 1, 1, 1), (1, 3, 2, 1), (1, 4, 1, 2)):
        latents, pixels = decoded(vae, sizes_of(vae, wrapper, rows, frames, height, width), seed)
        with torch.no_grad():
            errors.append(network_error([interpreter.decoded(graph, vae.state_dict(), latents)], (pixels,)))
    if not max(errors) <= VELOCITY_MAX:
        raise ExportError(f"{name}: pixels differ from the pipeline's by {max(errors):.1e} (relative)")
    return f"ok  {name} against {PIPELINES[USES[class_name][0]][0].name}: {len(errors)} cases, pixels {max(errors):.1e}"
