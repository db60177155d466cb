# SPDX-License-Identifier: Apache-2.0
"""torch.export of a wrapper around a transformer whose parameters need no memory."""
import contextlib
import inspect
import sys

import diffusers
import torch
from torch._dynamo.exc import UserError
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from export_model.wrapper import OTHER_UNITS, UNITS, sized


STATES = "states"  # The argument of a later frame's wrapper that holds all states by name.


class ExportError(Exception):
    """One line: what cannot be exported, and what to do."""


@contextlib.contextmanager
def fake_parameters():
    """Modules made inside have parameters of shapes alone. Buffers keep their values: they become constants."""
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
    register = torch.nn.Module.register_parameter

    def register_fake(module, name, parameter):
        if parameter is not None:
            with mode:
                value = torch.empty(parameter.shape, dtype=parameter.dtype)
            parameter = torch.nn.Parameter(value, requires_grad=parameter.requires_grad)
        register(module, name, parameter)

    torch.nn.Module.register_parameter = register_fake
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register


def transformer_class(wrapper):
    named = wrapper.transformer_class
    return getattr(diffusers, named) if isinstance(named, str) else named


def class_defaults(cls):
    """Every argument of the class's constructor that has a default."""
    parameters = inspect.signature(cls.__init__).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def make_transformer(wrapper, config, fake=False):
    """The module of a config.json. Keys that its class does not take are left out, as diffusers does, and named."""
    cls = transformer_class(wrapper)
    known = inspect.signature(cls.__init__).parameters
    config = cls.read_config(config) if hasattr(cls, "read_config") else config
    given = {key: value for key, value in config.items() if not key.startswith("_")}
    unknown = [key for key, value in given.items() if key not in known and value is not None]
    if unknown:
        print(f"config.json: {cls.__name__} takes no key {', '.join(unknown)}; left out", file=sys.stderr)
    given = {key: value for key, value in given.items() if key in known}
    missing = [name for name, p in known.items() if name != "self" and name not in given
               and p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if missing:
        raise ExportError(f"config.json: key '{missing[0]}' is missing; {cls.__name__} has no default for it")
    with fake_parameters() if fake else contextlib.nullcontext():
        transformer = cls(**given).eval()
    if not hasattr(transformer, "config"):  # A class of the user's own.
        transformer.config = class_defaults(cls) | given
    return transformer


def plain(value):
    """As JSON has it: lists for tuples."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def full_config(transformer):
    """Every key of the constructor with its value."""
    return plain({key: value for key, value in transformer.config.items() if not key.startswith("_")})


def shapes_at(wrapper, config, index):
    """Input shapes for the trace (index 0) and for checks (1 to 4)."""
    sizes = {name: symbol.size(UNITS.get(name, OTHER_UNITS)[index]) for name, symbol in wrapper.symbols(config).items()}
    return {name: sized(shape, sizes) for name, shape in wrapper.inputs(config).items()}


def example_inputs(wrapper, shapes, seed):
    generator = torch.Generator().manual_seed(seed)
    return {name: wrapper.example(name, shape, generator) for name, shape in shapes.items()}


def trace(wrapper, transformer):
    """The ExportedProgram of a wrapped transformer, with every symbol of the wrapper free."""
    config = full_config(transformer)
    taken, named = list(inspect.signature(wrapper.forward).parameters)[1:], list(wrapper.inputs(config))
    states = named[1:] if taken == ["latents", STATES] else []
    if not states and named != taken[:len(named)]:
        raise ExportError(f"{wrapper.__name__}: inputs() names {named}, forward() takes {taken}, in this order")
    inputs = example_inputs(wrapper, shapes_at(wrapper, config, 0), seed=0)
    free = {name: {dim: torch.export.Dim.DYNAMIC for dim, size in enumerate(shape) if isinstance(size, str)}
            for name, shape in wrapper.inputs(config).items()}
    if states:
        free, inputs = ({"latents": of["latents"], STATES: {name: of[name] for name in states}} for of in (free, inputs))
    with wrapper.traceable(transformer):
        try:
            return torch.export.export(wrapper(transformer).eval(), (), inputs, dynamic_shapes=free, strict=False)
        except UserError as error:
            reason = next((line.strip() for line in str(error).splitlines() if "specialized" in line), None)
            if reason is None:
                raise
            raise ExportError(f"{wrapper.__name__}: the model fixes the size of an input; rewrite that part in the wrapper. "
                              f"torch.export says: {reason}") from error
