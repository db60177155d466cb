# SPDX-License-Identifier: Apache-2.0
"""An exported graph against the module it came from: at other sizes than the trace's, forward and gradients."""
# Promise: An exported graph is its pipeline's velocity.
import torch

from export_model.graph_file import exported_graph
from export_model.interpreter import decoded, run
from export_model.tracing import ExportError, example_inputs, full_config, make_transformer, shapes_at
from export_model.wrapper import Decoder, Network

VELOCITY_MAX, GRADIENT_MAX = 1e-5, 1e-4  # Relative to the largest velocity, and to the gradient's norm.
NORM_LEAST = 1e-5  # Smaller gradients, relative to the largest, are rounding: a key's bias has none.
SHAPES = 4
CLIPS = ((2, 1, 2, 3), (1, 2, 3, 1), (2, 5, 1, 2))  # Rows, latent frames, height and width.


def randomised(transformer, seed):
    """Draws every parameter: zero or unit initialisation could hide errors."""
    generator = torch.Generator().manual_seed(seed)
    for name, p in transformer.named_parameters():
        scale = 0.3 if p.dim() < 2 else p[0].numel() ** -0.5
        p.data = torch.randn(p.shape, generator=generator) * scale + (1.0 if name.endswith("norm.weight") else 0.0)
    return transformer


def gradients(tensors):
    """Name -> gradient, and none is left behind."""
    taken = {name: t.grad for name, t in tensors.items() if t.grad is not None}
    for t in tensors.values():
        t.grad = None
    return taken


def velocity_error(v, expected):
    return ((v - expected).abs().max() / expected.abs().max()).item()


def gradient_error(found, expected):
    """The largest distance of two gradients of one tensor, relative to its norm."""
    least = NORM_LEAST * max(g.norm().item() for g in expected.values())
    zero = torch.zeros(())
    return max((found.get(name, zero) - g).norm().item() / max(g.norm().item(), least) for name, g in expected.items())


def compared(graph, tensors, inputs, expected_of):
    """(velocity error, gradient error) of a graph against `expected_of()`, which runs the module with gradients."""
    expected = expected_of()
    direction = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    (expected * direction).sum().backward()
    expected_gradients = gradients(tensors)
    v = run(graph, tensors, inputs)
    if v.shape != inputs["x"].shape:
        raise ExportError(f"the velocity has shape {list(v.shape)}, x has {list(inputs['x'].shape)}")
    (v * direction).sum().backward()
    return velocity_error(v, expected), gradient_error(gradients(tensors), expected_gradients)


def verdict(what, errors):
    velocity, gradient = (max(column) for column in zip(*errors))
    if not (velocity <= VELOCITY_MAX and gradient <= GRADIENT_MAX):
        raise ExportError(f"{what}: velocities differ by {velocity:.1e}, gradients by {gradient:.1e} (relative)")
    return f"ok  {what}: {len(errors)} cases, velocities {velocity:.1e}, gradients {gradient:.1e}"


def network_error(found, expected):
    """The largest error of several outputs, each relative to its own largest element."""
    if [t.shape for t in found] != [t.shape for t in expected]:
        raise ExportError(f"outputs have shapes {[list(t.shape) for t in found]}, the module's {[list(t.shape) for t in expected]}")
    return max(velocity_error(t, e) for t, e in zip(found, expected))


def clip_errors(wrapper, graph, vae, seed):
    """Of clips that are decoded frame by frame, against the module that takes them whole."""
    errors, tensors = [], vae.state_dict()
    for index, (rows, frames, height, width) in enumerate(CLIPS):
        generator = torch.Generator().manual_seed(seed + index)
        latents = torch.randn(rows, wrapper.inputs(vae.config)["latents"][1], frames, height, width, generator=generator)
        with torch.no_grad():
            errors.append(network_error([decoded(graph, tensors, latents)], [wrapper.whole(vae, latents)]))
    return errors


def check_network(wrapper, name, config, seed=0):
    """As check_graph, of a network that runs forward alone."""
    graph = exported_graph(wrapper, make_transformer(wrapper, config, fake=True))
    module = randomised(make_transformer(wrapper, config), seed)
    tensors = {wrapper.published_name(key): value for key, value in module.state_dict().items()}
    clips = issubclass(wrapper, Decoder) and wrapper.following
    errors = clip_errors(wrapper, graph, module, seed) if clips else []
    for index in range(1, 1 + SHAPES):
        inputs = example_inputs(wrapper, shapes_at(wrapper, full_config(module), index), seed + index)
        with torch.no_grad():
            errors.append(network_error(run(graph, tensors, inputs), wrapper(module)(**inputs)))
    if not max(errors) <= VELOCITY_MAX:
        raise ExportError(f"{name}: outputs differ by {max(errors):.1e} (relative)")
    return f"ok  {name} against its module: {len(errors)} cases, outputs {max(errors):.1e}"


def check_graph(wrapper, name, config, seed=0):
    """One line, or ExportError. Batches of one and rows with prompts of unequal length are among the cases."""
    if issubclass(wrapper, Network):
        return check_network(wrapper, name, config, seed)
    graph = exported_graph(wrapper, make_transformer(wrapper, config, fake=True))
    transformer = randomised(make_transformer(wrapper, config), seed)
    tensors, errors = transformer.state_dict(keep_vars=True), []
    for index in range(1, 1 + SHAPES):
        inputs = example_inputs(wrapper, shapes_at(wrapper, full_config(transformer), index), seed + index)
        errors.append(compared(graph, tensors, inputs, lambda: wrapper(transformer)(**inputs)))
    return verdict(f"{name} against diffusers", errors)
