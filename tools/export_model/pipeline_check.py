# SPDX-License-Identifier: Apache-2.0
"""Wrappers against the pipelines: what a diffusers pipeline gives its transformer and its scheduler, replayed.

A pipeline samples with a small transformer and random prompt embeddings, without guidance by a second forward. What it
hands to its scheduler at each step must be the velocity of the exported graph for the step's latents and sigma, and
the gradients of the same call must be the graph's. With guidance it must be the usual formula at the pipeline's scale
plus its offset (guided_velocity).
"""
import dataclasses

import diffusers
import torch
import transformers
from diffusers import FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler

from export_model.graph_file import exported_graph
from export_model.self_check import SHAPES, compared, randomised, velocity_error, verdict, VELOCITY_MAX
from export_model.tracing import ExportError, example_inputs, full_config, make_transformer, shapes_at
from export_model.wrappers import TINY, WRAPPERS

transformers.logging.set_verbosity_error()  # Processors of pictures that it does not have are not used here.
STEPS, GUIDANCE = 3, 2.5
GUIDED_MAX = 5e-5  # Relative to the largest velocity. A scale multiplies rounding.
GUIDED_SCALES = (0.5, 3.0)  # A pipeline whose scale is another than the usual one guides by the first, too.


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """How one pipeline is called for given inputs of the graph, and what its tensors are as latents."""
    name: str
    scheduler: object
    arguments: object  # inputs -> arguments of the call
    missing: tuple = ("vae", "text_encoder", "tokenizer")
    autoencoder: object = None  # Makes one, for a pipeline that asks it for more than pictures.
    pixels: int = 8  # A latent's side.
    frames: int = 0  # Pictures a latent frame; 0: no video.
    # (tensor of the scheduler's step, inputs) -> [B, C, (F,) H, W]
    latents: object = lambda tensor, inputs: tensor
    # The pipeline's work between its transformer and its scheduler.
    output: object = lambda output: output[0]
    # (inputs of a negative prompt, the pipeline's scale) -> more arguments; None: it never asks its transformer twice.
    guided: object = None
    guidance_offset: float = 0.0  # From the pipeline's scale to that of the usual formula.


def euler(**others):
    return lambda: FlowMatchEulerDiscreteScheduler(**others)


def unipc():
    return UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0)


def prompt(inputs):
    return dict(prompt_embeds=inputs["tokens"])


def against(scale_key, **parts):
    """The arguments of guidance against a negative prompt: {argument: input, or function of the inputs}."""
    def arguments(negative, scale):
        taken = {name: part(negative) if callable(part) else negative[part] for name, part in parts.items()}
        return taken | {scale_key: scale}
    return arguments


def two_by_two(tensor, inputs):
    """FLUX's and Qwen-Image's own unpacking."""
    height, width = inputs["x"].shape[2:]
    return diffusers.FluxPipeline._unpack_latents(tensor, height * 8, width * 8, 8)


def ltx_latents(tensor, inputs):
    return diffusers.LTXPipeline._unpack_latents(tensor, *inputs["x"].shape[2:])


def flux2_autoencoder():
    """FLUX.2 has the latents' means and deviations in it."""
    return diffusers.AutoencoderKLFlux2(
        block_out_channels=(2,) * 4, latent_channels=2, layers_per_block=1, norm_num_groups=1)


def flux2_latents(tensor, inputs):
    ids = diffusers.Flux2Pipeline._prepare_latent_ids(inputs["x"])
    return diffusers.Flux2Pipeline._unpack_latents_with_ids(tensor, ids)


def lists(inputs):
    """Z-Image takes each prompt as long as it is."""
    return [row[mask > 0] for row, mask in zip(inputs["tokens"], inputs["mask"])]


def sd3():
    no_second = lambda i: prompt(i) | dict(pooled_prompt_embeds=i["pooled"], guidance_scale=1.0)
    missing = [part + number for part in ("text_encoder", "tokenizer") for number in ("", "_2", "_3")]
    return Pipeline("StableDiffusion3Pipeline", euler(shift=3.0), no_second, ("vae", *missing),
                    guided=against("guidance_scale", negative_prompt_embeds="tokens", negative_pooled_prompt_embeds="pooled"))


def flux(guidance):
    arguments = lambda i: prompt(i) | dict(pooled_prompt_embeds=i["pooled"], guidance_scale=guidance)
    missing = ("vae", "text_encoder", "tokenizer", "text_encoder_2", "tokenizer_2")
    return Pipeline("FluxPipeline", euler(use_dynamic_shifting=True), arguments, missing, latents=two_by_two,
                    guided=against("true_cfg_scale", negative_prompt_embeds="tokens", negative_pooled_prompt_embeds="pooled"))


def wan(scheduler):
    return Pipeline("WanPipeline", scheduler, lambda i: prompt(i) | dict(guidance_scale=1.0), frames=4,
                    guided=against("guidance_scale", negative_prompt_embeds="tokens"))


def flux2(name, guidance, guided=None):
    return Pipeline(name, euler(use_dynamic_shifting=True), lambda i: prompt(i) | dict(guidance_scale=guidance),
                    missing=("text_encoder", "tokenizer"), autoencoder=flux2_autoencoder, pixels=16, latents=flux2_latents,
                    guided=guided)


PIPELINES = {
    "sd3_tiny": [sd3()],
    "flux_dev_tiny": [flux(GUIDANCE)],
    "flux_schnell_tiny": [flux(0.0)],
    "wan_tiny": [wan(unipc), wan(euler(shift=3.0))],
    "qwen_image_tiny": [Pipeline(
        "QwenImagePipeline", euler(use_dynamic_shifting=True),
        lambda i: prompt(i) | dict(prompt_embeds_mask=i["mask"].long(), true_cfg_scale=1.0), latents=two_by_two,
        guided=against("true_cfg_scale", negative_prompt_embeds="tokens",
                       negative_prompt_embeds_mask=lambda i: i["mask"].long()))],
    "z_image_tiny": [Pipeline(
        "ZImagePipeline", euler(use_dynamic_shifting=True), lambda i: dict(prompt_embeds=lists(i), guidance_scale=0.0),
        output=lambda output: -torch.stack(output[0]).squeeze(2),
        guided=against("guidance_scale", negative_prompt_embeds=lists), guidance_offset=1.0)],
    "flux2_dev_tiny": [flux2("Flux2Pipeline", GUIDANCE)],
    "flux2_klein_tiny": [flux2("Flux2KleinPipeline", 1.0, against("guidance_scale", negative_prompt_embeds="tokens"))],
    "hunyuan_video_tiny": [Pipeline(
        "HunyuanVideoPipeline", euler(shift=7.0),
        lambda i: prompt(i) | dict(prompt_attention_mask=i["mask"].long(), pooled_prompt_embeds=i["pooled"],
                                   guidance_scale=GUIDANCE),
        ("vae", "text_encoder", "tokenizer", "text_encoder_2", "tokenizer_2"), frames=4,
        guided=against("true_cfg_scale", negative_prompt_embeds="tokens", negative_pooled_prompt_embeds="pooled",
                       negative_prompt_attention_mask=lambda i: i["mask"].long()))],
    "ltx_tiny": [Pipeline(
        "LTXPipeline", euler(use_dynamic_shifting=True),
        lambda i: prompt(i) | dict(prompt_attention_mask=i["mask"].bool(), guidance_scale=1.0),
        pixels=32, frames=8, latents=ltx_latents,
        guided=against("guidance_scale", negative_prompt_embeds="tokens",
                       negative_prompt_attention_mask=lambda i: i["mask"].bool()))],
}


def sampled(pipeline, transformer, inputs, more=None):
    """The transformer's calls, and the scheduler's steps as (velocity, timestep, latents, latents after it), of one sampling."""
    scheduler = pipeline.scheduler()
    others = dict.fromkeys(pipeline.missing) | ({"vae": pipeline.autoencoder()} if pipeline.autoencoder else {})
    made = getattr(diffusers, pipeline.name)(transformer=transformer, scheduler=scheduler, **others)
    made.set_progress_bar_config(disable=True)
    calls, steps, forward, step = [], [], transformer.forward, scheduler.step

    def recording_forward(*args, **kwargs):
        calls.append((args, kwargs))
        return forward(*args, **kwargs)

    def recording_step(velocity, timestep, latents, **kwargs):
        after = step(velocity, timestep, latents, **kwargs)
        steps.append((velocity, timestep, latents, after[0]))
        return after

    transformer.forward, scheduler.step = recording_forward, recording_step
    height, width = inputs["x"].shape[-2:]
    size = dict(height=height * pipeline.pixels, width=width * pipeline.pixels)
    if pipeline.frames:
        size["num_frames"] = (inputs["x"].shape[2] - 1) * pipeline.frames + 1
    try:
        made(**(pipeline.arguments(inputs) | (more or {})), **size, num_inference_steps=STEPS, output_type="latent",
             generator=torch.Generator().manual_seed(0))
    finally:
        transformer.forward = forward
    return calls, steps


def recorded(pipeline, transformer, inputs):
    """[(arguments and keywords of the transformer, the scheduler's velocity, timestep, latents)] of one sampling."""
    calls, steps = sampled(pipeline, transformer, inputs)
    if len(calls) != STEPS or len(steps) != STEPS:
        raise ExportError(f"{pipeline.name}: {len(calls)} forwards and {len(steps)} steps, expected {STEPS} of each")
    return [(*call, *step[:3]) for call, step in zip(calls, steps)]


def one_prompt(inputs):
    """The first row's prompt for all rows, as a negative prompt is."""
    return {name: part[:1].expand(part.shape) if name not in ("x", "sigma", "guidance") else part for name, part in inputs.items()}


def norms(v, patch):
    """For tokens, which are all channels of patch x patch latents."""
    tokens = v.unflatten(-1, (-1, patch)).unflatten(-3, (-1, patch))
    return (tokens.square().sum((1, -3, -1), keepdim=True).sqrt().expand(tokens.shape)).flatten(-2).flatten(-3, -2)


def guided_velocity(wrapper, velocity_of, prompt, negative, scale):
    """The usual formula. 1 follows the prompt alone."""
    v = velocity_of(prompt)
    if scale <= 1:
        return v
    against = velocity_of(negative)
    guided = against + scale * (v - against)
    return guided * norms(v, 2) / norms(guided, 2) if wrapper.guidance_norm else guided


def guided_steps(pipeline, transformer, inputs, negative, scale):
    """[(latents, sigma of each row, the scheduler's velocity, latents after it)], all as [B, C, (F,) H, W]."""
    _, steps = sampled(pipeline, transformer, inputs, pipeline.guided(negative, scale))
    unpacked = lambda tensor: pipeline.latents(tensor, inputs)
    return [(unpacked(latents), (timestep / 1000).to(torch.float32).expand(inputs["x"].shape[0]), unpacked(velocity), unpacked(after))
            for velocity, timestep, latents, after in steps]


@torch.no_grad()
def check_guided(pipeline, wrapper, transformer, inputs, negative):
    """The largest error of what the pipeline hands to its scheduler with guidance."""
    negative = one_prompt(negative)
    if "guidance" in inputs:
        inputs["guidance"] = negative["guidance"] = torch.full_like(inputs["guidance"], GUIDANCE)
    error = 0.0
    for scale in GUIDED_SCALES:
        for x, sigma, velocity, _ in guided_steps(pipeline, transformer, inputs, negative, scale):
            at = dict(x=x, sigma=sigma)
            right = guided_velocity(wrapper, lambda prompt: wrapper(transformer)(**(prompt | at)), inputs, negative,
                                    scale + pipeline.guidance_offset)
            error = max(error, velocity_error(velocity, right))
    if error > GUIDED_MAX:
        raise ExportError(f"{pipeline.name}: with guidance its velocity is another than the formula's, by {error:.1e} (relative)")
    return error


def check_sampling(pipeline, graph, transformer, inputs):
    """Errors of each step of one sampling."""
    tensors, errors = transformer.state_dict(keep_vars=True), []
    if "guidance" in inputs:
        inputs["guidance"] = torch.full_like(inputs["guidance"], GUIDANCE)
    for args, kwargs, velocity, timestep, latents in recorded(pipeline, transformer, inputs):
        x = pipeline.latents(latents, inputs)
        sigma = (timestep / 1000).to(torch.float32).expand(x.shape[0])
        replay = lambda: pipeline.latents(pipeline.output(transformer(*args, **kwargs)), inputs)
        if velocity_error(replay().detach(), pipeline.latents(velocity, inputs)) > VELOCITY_MAX:
            raise ExportError(f"{pipeline.name}: the transformer's call, repeated, is not what the scheduler was given")
        errors.append(compared(graph, tensors, inputs | {"x": x, "sigma": sigma}, replay))
    return errors


def check_pipeline(name, seed=0):
    """One line, or ExportError."""
    class_name, config = TINY[name]
    wrapper, errors = WRAPPERS[class_name], []
    graph = exported_graph(wrapper, make_transformer(wrapper, config, fake=True))
    transformer = randomised(make_transformer(wrapper, config), seed)
    for pipeline in PIPELINES[name]:
        for index in range(1, 1 + SHAPES):
            inputs = example_inputs(wrapper, shapes_at(wrapper, full_config(transformer), index), seed + index)
            errors += check_sampling(pipeline, graph, transformer, inputs)
            if pipeline.guided:
                negative = example_inputs(wrapper, shapes_at(wrapper, full_config(transformer), index), seed + 100 + index)
                check_guided(pipeline, wrapper, transformer, inputs, negative)
    return verdict(f"{name} against {PIPELINES[name][0].name}", errors)
