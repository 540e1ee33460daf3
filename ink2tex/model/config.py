"""What a network is made of, as plain settings that travel inside every checkpoint.

Names and defaults are the paper's: n = 256, d = 512, D = 684, K = 113, kernels 5 and 11.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ink2tex.errors import RecipeError
from ink2tex.settings import from_mapping, to_mapping

Mode = Literal["l2r", "r2l", "aum", "aum-r2l", "bml"]
#: The directions of the branches of each mode; the first one is the branch that the mode is named after.
DIRECTIONS: dict[str, tuple[str, ...]] = {
    "l2r": ("l2r",),
    "r2l": ("r2l",),
    "aum": ("l2r", "l2r"),
    "aum-r2l": ("r2l", "r2l"),
    "bml": ("l2r", "r2l"),
}


@dataclass(frozen=True)
class EncoderConfig:
    """The feature extractor; every one of them reduces height and width by 16."""

    kind: Literal["densenet", "light-densenet", "mobilenetv2", "xception"] = "densenet"
    #: Channels added by each dense layer, and layers of each dense block (three, or two after a light stem).
    growth: int = 24
    blocks: tuple[int, ...] = (16, 16, 16)
    #: Output channels of the three stride-2 convolutions of the light stem.
    stem: tuple[int, ...] = (24, 64, 144)
    #: Width multiplier of MobileNetV2 and Xception.
    width: float = 1.0
    dropout: float = 0.2

    def __post_init__(self) -> None:
        wanted = {"densenet": 3, "light-densenet": 2}.get(self.kind)
        if wanted is not None and len(self.blocks) != wanted:
            raise RecipeError(f"'{self.kind}' has {wanted} dense blocks, but 'blocks' lists {len(self.blocks)}")
        if self.kind == "light-densenet" and len(self.stem) != 3:
            raise RecipeError("'stem' lists the channels of three convolutions")
        if not 0 <= self.dropout < 1:
            raise RecipeError("'dropout' is a probability below 1")


@dataclass(frozen=True)
class AttentionConfig:
    """Coverage attention: one kernel size is the DWAP baseline, several are the Attention Aggregation Module."""

    kernels: tuple[int, ...] = (5, 11)
    #: d, the width in which query, features and coverage are added.
    width: int = 512
    #: Filters of each coverage convolution before its linear map.
    channels: int = 512

    def __post_init__(self) -> None:
        if not self.kernels or any(k < 1 or k % 2 == 0 for k in self.kernels):
            raise RecipeError(f"'kernels' are odd sizes such as [5, 11], not {list(self.kernels)}")


@dataclass(frozen=True)
class DecoderConfig:
    """One branch. The Transformer ignores `attention` and takes `layers` and `heads` instead."""

    kind: Literal["gru", "lstm", "transformer"] = "gru"
    #: n, the width of the state and of the embedding.
    hidden: int = 256
    dropout: float = 0.0
    layers: int = 3
    heads: int = 8
    attention: AttentionConfig = field(default_factory=AttentionConfig)

    def __post_init__(self) -> None:
        if self.hidden % 2:
            raise RecipeError("'hidden' is even, because maxout takes the larger of neighbouring pairs")
        if self.kind == "transformer" and self.hidden % (4 * self.heads):
            raise RecipeError("'hidden' of a Transformer is a multiple of four times 'heads'")


@dataclass(frozen=True)
class NetworkConfig:
    """A whole recogniser: encoder, the kind of branch, and which branches there are."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    decoder: DecoderConfig = field(default_factory=DecoderConfig)
    mode: Mode = "bml"
    #: The bitmap is drawn (or resized) to this multiple of the official size before the encoder sees it.
    input_scale: float = 1.0

    def __post_init__(self) -> None:
        if not 0.1 <= self.input_scale <= 4:
            raise RecipeError("'input_scale' lies between 0.1 and 4")

    @property
    def directions(self) -> tuple[str, ...]:
        """The direction of each branch, the one used at inference first."""
        return DIRECTIONS[self.mode]

    @classmethod
    def from_mapping(cls, values: Any) -> NetworkConfig:
        """Read a configuration from a recipe or a checkpoint, strictly."""
        return from_mapping(cls, values, "network")

    def to_mapping(self) -> dict[str, Any]:
        """The configuration in types that JSON and YAML know."""
        return to_mapping(self)
