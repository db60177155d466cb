# SPDX-License-Identifier: Apache-2.0
"""One class of transformer, wrapped so that all look alike: a velocity of named tensors.

A wrapper holds the diffusers module as `self.transformer` and turns (x, sigma, parts...) into its call: packing,
position ids, the scale of the timestep, the sign. Everything that differs between classes is in such a file.
"""
import contextlib
import dataclasses

import torch

INNER = "transformer"  # The attribute of the diffusers module: cut off parameter names.


@dataclasses.dataclass(frozen=True)
class Symbol:
    """A size that is free when the graph runs: min <= size <= max, a multiple of `multiple`."""
    min: int = 1
    max: int | None = None
    multiple: int = 1

    def __post_init__(self):
        if self.min % self.multiple or (self.max or 0) % self.multiple:
            raise ValueError(f"{self}: min and max must be multiples of {self.multiple}")

    def header(self):
        fields = {"min": self.min, "max": self.max, "multiple": self.multiple if self.multiple > 1 else None}
        return {key: value for key, value in fields.items() if value is not None}

    def size(self, units):
        """That many multiples, within the limits."""
        size = max(self.min, units * self.multiple)
        return min(size, self.max) if self.max else size


# Multiples to trace at, then to check at. A trace's sizes differ, or it takes them to be one; none of them is 1.
UNITS = {"B": (2, 3, 1, 1, 4), "F": (3, 2, 4, 1, 5), "H": (4, 5, 2, 3, 1), "W": (6, 3, 4, 2, 9), "S": (7, 11, 5, 3, 16),
         "C": (56, 61, 40, 33, 75)}
OTHER_UNITS = (8, 13, 9, 6, 2)


@contextlib.contextmanager
def replaced(owner, name, value):
    """`owner.name` is `value` inside."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


class Wrapper(torch.nn.Module):
    """Base of all wrappers. Velocity is noise - data, of x's shape; sigma is in [0, 1]."""

    transformer_class = ""  # "FluxTransformer2DModel", a class of diffusers; or the class itself.
    guidance = None  # The pipeline's default scale, where guidance is an input.
    guidance_norm = False  # The pipeline gives a guided token the norm of the one with the prompt.
    tiny = {}  # Name -> a small config with every part of the network, for checks and goldens.
    notes = ()  # Keys of the config that change nothing in the graph: any value fits.

    def __init__(self, transformer):
        super().__init__()
        setattr(self, INNER, transformer)

    @classmethod
    def class_name(cls):
        named = cls.transformer_class
        return named if isinstance(named, str) else named.__name__

    @classmethod
    def symbols(cls, config):
        """Name -> Symbol. Names used by oxbow: B rows, H and W, F latent frames, S text tokens."""
        raise NotImplementedError

    @classmethod
    def inputs(cls, config):
        """Name -> shape of ints and symbol names, in the order of forward's arguments: x, sigma, then parts."""
        raise NotImplementedError

    @classmethod
    def latent_size(cls, config):
        """The pipeline's default size in latents: "side", for videos "frames" too."""
        return {"side": 128}

    @classmethod
    def example(cls, name, shape, generator):
        """A random input of the shape. Masks begin with ones: rows of unequal prompts."""
        if name == "sigma":
            return torch.rand(shape, generator=generator) * 0.98 + 0.01
        if name == "guidance":
            return torch.rand(shape, generator=generator) * 4 + 1
        if name == "mask":
            lengths = torch.randint(1, shape[1] + 1, (shape[0],), generator=generator)
            lengths[0] = shape[1]
            return (torch.arange(shape[1])[None] < lengths[:, None]).float()
        return torch.randn(shape, generator=generator)

    @classmethod
    @contextlib.contextmanager
    def traceable(cls, transformer):
        """Replaces what cannot be traced, or would end as a large constant, while the graph is made."""
        yield

    @classmethod
    def published_name(cls, name):
        """The name in a checkpoint of a parameter of the module."""
        return name

    def forward(self, x, sigma, tokens):
        raise NotImplementedError


def sized(shape, sizes):
    """A shape with numbers for symbols and for their multiples: "H", "2H"."""
    def number(size):
        symbol = size.lstrip("0123456789") if isinstance(size, str) else None
        return int(size[:-len(symbol)] or 1) * sizes[symbol] if symbol in sizes else size
    return [number(size) for size in shape]


class Network(Wrapper):
    """Base of networks that are no velocity, such as rewards: tensors in by name, float32 tensors out by name.

    They run forward alone. `inputs` has any names; each begins with the rows, B. One that `example` makes of integers
    is int64 in the file.
    """

    outputs = ()  # Names, in the order in which forward returns the tensors.

    @classmethod
    def output_names(cls, config):
        return cls.outputs


class Decoder(Network):
    """Base of decoders: latents as a transformer sees them in, pixels [B, C, H, W] or [B, C, F, H, W] in about [-1, 1] out."""

    outputs = ("pixels",)
    # The wrapper of each latent frame but the first, where they are decoded one after the other: what it takes beside
    # latents are states, which both return after the pixels under the same names.
    following = None

    @classmethod
    def whole(cls, autoencoder, latents):
        """The pixels of all frames by the module itself, where there is such a wrapper."""
        raise NotImplementedError

    @classmethod
    def symbols(cls, config):
        sizes = {size for size in cls.inputs(config)["latents"] if isinstance(size, str)}
        return {name: Symbol() for name in "BFHW" if name in sizes}

    @classmethod
    def decoder(cls, autoencoder):
        """Pixels of a side per latent, "space"; frames per latent frame but the first, "time"; "tile" of a long video:

        the latent frames between two cuts ("stride"), and those of a tile ("frames") that make pixels of their own.
        """
        raise NotImplementedError
