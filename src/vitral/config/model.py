"""What to build: a Vision Transformer or one of its rivals."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from vitral.base.errors import ConfigError
from vitral.base.settings import LARGEST_INPUT, LARGEST_TABLE, at_least, at_most, check_share, check_values, lists_as_tuples

Family = Literal["vit", "hybrid", "cnn", "resnet18", "resnet50", "resnet152", "own"]
OPEN = ("image_size", "channels", "classes")
"""What a model that is asked for may leave open (None). The types say what everything after `run.resolve` may rely on: a value."""


@dataclass(frozen=True)
class ModelConfig:
    """A Vision Transformer, or one of its rivals."""

    family: Family = "vit"
    """vit; hybrid = a ResNet stem whose feature map becomes the tokens; or a rival: cnn, resnet18, resnet50, resnet152;
    own = a module that a program gave to `vitral.fit`."""
    image_size: tuple[int, int] = (224, 224)
    """Height and width of the image in pixels; None: as the data or the weights say."""
    patch_size: tuple[int, int] = (16, 16)
    """Height and width of a patch (for a hybrid: in cells of the stem's feature map)."""
    stride: tuple[int, int] | None = None
    """From one patch to the next; None: the patch size. Smaller: patches overlap (the image is padded to keep the grid size / stride)."""
    channels: int = 3
    """Colour channels of the image; None: as the data or the weights say."""
    classes: int = 1000
    """Number of outputs; 0: no head, the pooled features come out; None: as many as the data has."""
    width: int = 192
    """Numbers per token (D); for the cnn: channels of its first convolution (32 in report R2)."""
    depth: int = 12
    """Number of blocks (L)."""
    heads: int = 3
    """Attention heads per block; each has width / heads numbers."""
    mlp_width: int = 768
    """Hidden numbers of the MLP in each block."""
    pool: Literal["class", "mean", "class+mean", "attention", "map"] = "class"
    """What the head reads: the class token, the mean of the patches, both side by side (DINOv2's linear head), what a learned
    query attends to, or that with an MLP added (map: SigLIP)."""
    pool_over: Literal["patches", "tokens"] = "patches"
    """What mean and map read: the patches alone, or the tokens before them too."""
    pool_heads: int = 0
    """Attention heads of pool = map; 0: as many as a block has."""
    pool_mlp_width: int = 0
    """Hidden numbers of the MLP of pool = map; 0: as many as a block has."""
    class_token: bool = True
    """Prepend a learned class token. Needed for pool = class; possible with the others."""
    distillation_token: bool = False
    """A second token with its own head (DeiT); the two heads are averaged when predicting."""
    registers: int = 0
    """Extra learned tokens that belong to no patch (DINOv2 with registers)."""
    positions: Literal["learned", "sincos", "rotary", "learned+rotary", "relative", "learned+relative", "none"] = "learned"
    """One learned vector per token; fixed sine/cosine; 2-D rotary inside attention; relative: a learned bias on attention by how
    far apart two patches lie (BEiT); vectors and one of these; or none."""
    rotary: Literal["plain", "axial", "mixed", "eva", "perception", "dinov3"] = "plain"
    """The kind of angles of rotary positions: plain = ours; axial and mixed (each head learns its own) = RoPE-ViT; eva = EVA-02;
    perception = Perception Encoder; dinov3."""
    rotary_grid: tuple[int, int] | None = None
    """Rows and columns of patches that eva's and perception's angles are made for; a larger grid is squeezed into it. None: any."""
    relative_mlp: int = 0
    """Hidden numbers of the MLP that makes relative positions of a distance (timm's relpos ViTs); 0: a learned table of them (BEiT)."""
    prefix_positions: Literal["all", "class", "none"] = "class"
    """Which tokens before the patches have learned positions too: all, class (and distillation) tokens, none."""
    norm: Literal["layer", "rms"] = "layer"
    """LayerNorm or RMSNorm."""
    norm_epsilon: float = 1e-6
    """Added to the variance before its root is divided by."""
    block: Literal["sequential", "parallel"] = "sequential"
    """Attention, then the MLP; or both at once on the same norm of the tokens (ViT-22B)."""
    norm_order: Literal["pre", "post", "res-post"] = "pre"
    """pre (ViT): normalise before attention and MLP; post (the original Transformer): after each addition; res-post (Swin v2): before
    each addition, what is added."""
    sub_norm: Literal["none", "mlp", "attention+mlp"] = "none"
    """A norm inside too (EVA-02, BEiT v3): on the hidden numbers of the MLP, and on the joined heads."""
    patch_norm: bool = False
    """A norm on each patch's vector before positions are added (AIMv2)."""
    embedding_norm: bool = False
    """A norm on the tokens before the first block (CLIP)."""
    final_norm: bool = True
    """A norm on the tokens after the last block."""
    pool_norm: bool = False
    """A norm on the pooled vector (MAE, timm's average pooling)."""
    qk_norm: bool = False
    """Normalise queries and keys per head."""
    layer_scale: float | None = None
    """Start value of a learned factor per channel on each residual branch; None: no such factor."""
    activation: Literal["gelu", "gelu_tanh", "quick_gelu", "relu", "swiglu"] = "gelu"
    """Between the two layers of the MLP; swiglu has a gate beside each value, so its first layer is twice as wide."""
    qkv_bias: bool = True
    """Bias of the fused query/key/value projection."""
    bias: bool = True
    """Bias of attention's output projection and of the MLP."""
    patch_bias: bool = True
    """Bias of the patch embedding."""
    head_bias: bool = True
    """Bias of the head."""
    head_hidden: int = 0
    """0: a linear head; otherwise a tanh layer of this width before it."""
    dropout: float = 0.0
    """After the position embedding and inside the MLP and projections."""
    attention_dropout: float = 0.0
    """On the attention weights."""
    drop_path: float = 0.0
    """Share of residual branches dropped per sample in the last block; rises linearly from 0 in the first."""
    initialisation: Literal["vit", "torch", "zero"] = "vit"
    """vit: truncated normal 0.02. torch: PyTorch's defaults, standard Gaussian tokens and positions (the reports).
    zero: as torch for matrices, 0.02 for tokens, and output projections that start at zero."""
    gradient_checkpointing: bool = False
    """Recompute blocks in the backward pass: less memory, more time."""

    def __post_init__(self) -> None:
        for name in ("image_size", "patch_size", "stride", "rotary_grid"):
            if isinstance(value := getattr(self, name), int):
                object.__setattr__(self, name, (value, value))
        lists_as_tuples(self)
        check_values(self)
        for name, least in (("channels", 1), ("width", 1), ("depth", 1), ("heads", 1), ("mlp_width", 1), ("classes", 0)):
            if name not in self.left_open:
                at_least(self, name, least)
        for name in ("registers", "head_hidden", "pool_heads", "pool_mlp_width", "relative_mlp"):
            at_least(self, name, 0)
        for name in ("dropout", "attention_dropout", "drop_path"):
            check_share(self, name)
        for name in ("image_size", "patch_size"):
            if name not in self.left_open and min(getattr(self, name)) < 1:
                raise ConfigError(f"{name} {_by(getattr(self, name))}", "it must be at least 1 pixel")
        if "image_size" not in self.left_open:
            at_most(f"an image of {_by(self.image_size)}", self.image_size[0] * self.image_size[1] * (self.channels or 1), LARGEST_INPUT)
        if self.norm_epsilon <= 0:
            raise ConfigError(f"norm_epsilon {self.norm_epsilon} is not positive", "use 1e-6")
        if self.is_transformer:
            self._check_transformer()

    def _check_transformer(self) -> None:
        if self.width % self.heads:
            around = (heads for distance in range(NEAR) for heads in (self.heads - distance, self.heads + distance))
            best = next((heads for heads in around if heads > 0 and self.width % heads == 0), 1)
            raise ConfigError(f"width {self.width} is not divisible by {self.heads} heads", f"use {best} heads")
        if self.pool in ("class", "class+mean") and not self.class_token:
            raise ConfigError(f"pool = {self.pool} needs a class token", "set class_token = True or pool = mean")
        if self.pool == "class+mean" and self.pool_norm:
            raise ConfigError("pool = class+mean has no norm on the pooled vector", "set pool_norm = False")
        if self.distillation_token and self.pool != "class":
            raise ConfigError("a distillation token goes with pool = class", "set pool = class")
        if self.block == "parallel" and self.norm_order != "pre":
            raise ConfigError("a parallel block normalises before attention and MLP", "set norm_order = pre")
        if self.pool == "map" and self.width % (self.pool_heads or self.heads):
            raise ConfigError(f"width {self.width} is not divisible by {self.pool_heads} heads of its pool", "change pool_heads")
        if self.is_relative and self.prefix != int(self.class_token):
            raise ConfigError("relative positions know of one token beside the patches, the class token", "leave out the other tokens")
        if self.is_rotary and (self.width // self.heads) % 4:
            raise ConfigError(
                f"2-D rotary positions need a head width divisible by 4, here it is {self.width // self.heads}",
                "change width or heads",
            )
        if self.positions == "sincos" and self.width % 4:
            raise ConfigError(
                f"2-D sine/cosine positions need a width divisible by 4, here it is {self.width}", f"use {self.width // 4 * 4 or 4}"
            )
        if self.stride is not None and any(s < 1 or s > p for s, p in zip(self.stride, self.patch_size, strict=True)):
            raise ConfigError(
                f"stride {_by(self.stride)} does not lie between 1 and patch {_by(self.patch_size)}", "use the patch size or less"
            )
        if "image_size" not in self.left_open:
            self._check_grid()

    def _check_grid(self) -> None:
        source, what = self.source_size, "image" if self.family == "vit" else "feature map"
        stride = self.patch_stride
        if any(size % s for size, s in zip(source, stride, strict=True)):
            low = tuple(size // s * s for size, s in zip(source, stride, strict=True))
            high = tuple(-(-size // s) * s for size, s in zip(source, stride, strict=True))
            down = 1 if self.family == "vit" else STEM_REDUCTION
            options = [_size(tuple(v * down for v in option)) for option in (low, high) if min(option) > 0]
            name = "patch" if stride == self.patch_size else "stride"
            raise ConfigError(f"{what} {_by(source)} is not divisible by {name} {_size(stride)}", f"use image size {' or '.join(options)}")
        if self.positions == "sincos" or self.is_rotary:
            at_most(f"a table of positions for {self.tokens:,} tokens", self.tokens * self.width, LARGEST_TABLE)

    @property
    def left_open(self) -> tuple[str, ...]:
        """The fields that the data or the weights are to decide."""
        return tuple(name for name in OPEN if getattr(self, name) is None)

    def opened(self) -> ModelConfig:
        """The same model for whatever data comes: image size, channels and classes left open."""
        return dataclasses.replace(self, **dict.fromkeys(OPEN))

    @property
    def is_transformer(self) -> bool:
        """Whether it has tokens, blocks and attention."""
        return self.family in ("vit", "hybrid")

    @property
    def is_rotary(self) -> bool:
        """Whether queries and keys turn by where their patch lies."""
        return self.positions.endswith("rotary")

    @property
    def is_relative(self) -> bool:
        """Whether attention has a bias by how far apart two patches lie."""
        return self.positions.endswith("relative")

    @property
    def has_table(self) -> bool:
        """Whether a learned vector is added to each token by where it lies."""
        return self.positions.startswith("learned")

    @property
    def patch_stride(self) -> tuple[int, int]:
        """Rows and columns from one patch to the next."""
        return self.stride or self.patch_size

    @property
    def source_size(self) -> tuple[int, int]:
        """Height and width of what is cut into patches: the image, or the stem's feature map."""
        if "image_size" in self.left_open:
            raise ConfigError("the image size of this model is open", "give it an image_size, or data to take it from")
        if self.family == "hybrid":
            return -(-self.image_size[0] // STEM_REDUCTION), -(-self.image_size[1] // STEM_REDUCTION)
        return self.image_size

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.source_size[0] // self.patch_stride[0], self.source_size[1] // self.patch_stride[1]

    @property
    def prefix(self) -> int:
        """Number of tokens before the patches: class, distillation, registers, in this order."""
        return int(self.class_token) + int(self.distillation_token) + self.registers

    @property
    def tokens(self) -> int:
        return self.prefix + self.grid[0] * self.grid[1]


NEAR = 1000
"""How far from an impossible number of heads a possible one is looked for."""
STEM_REDUCTION = 4
"""The hybrid's ResNet stem shrinks each side by this factor."""


def _by(size: tuple[int, ...]) -> str:
    return "×".join(map(str, size))


def _size(size: tuple[int, ...]) -> str:
    return str(size[0]) if len(set(size)) == 1 else _by(size)
