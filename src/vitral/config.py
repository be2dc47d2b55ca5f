"""What to build, what to train it on, and how: frozen dataclasses, checked when made, to and from JSON.

A config is what somebody *asks* for: a model may leave its image size, channels and classes open (None), to be what the data or the
weights say. `run.resolve` settles them, and from then on nothing is open. Impossible combinations are refused here, by name, before
anything is spent.
"""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from vitral.base.errors import ConfigError
from vitral.base.settings import LARGEST_INPUT, LARGEST_TABLE, at_least, at_most, check_share, check_values, fit_value, say_kind

Family = Literal["vit", "hybrid", "cnn", "resnet18", "resnet50", "resnet152", "own"]
OPEN = ("image_size", "channels", "classes")
"""What a model that is asked for may leave open (None). The types say what everything after `run.resolve` may rely on: a value."""
C = TypeVar("C")


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
    pool: Literal["class", "mean", "class+mean", "attention"] = "class"
    """What the head reads: the class token, the mean of the patches, both side by side (DINOv2's linear head), or what a learned
    query attends to."""
    class_token: bool = True
    """Prepend a learned class token. Needed for pool = class; possible with the others."""
    distillation_token: bool = False
    """A second token with its own head (DeiT); the two heads are averaged when predicting."""
    registers: int = 0
    """Extra learned tokens that belong to no patch (DINOv2 with registers)."""
    positions: Literal["learned", "sincos", "rotary", "none"] = "learned"
    """One learned vector per token; fixed sine/cosine; 2-D rotary inside attention; or none."""
    prefix_positions: Literal["all", "class", "none"] = "class"
    """Which tokens before the patches have learned positions too: all, class (and distillation) tokens, none."""
    norm: Literal["layer", "rms"] = "layer"
    """LayerNorm or RMSNorm."""
    norm_epsilon: float = 1e-6
    """Added to the variance before its root is divided by."""
    norm_order: Literal["pre", "post"] = "pre"
    """pre (ViT): normalise before attention and MLP; post (the original Transformer): after each addition."""
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
        for name in ("image_size", "patch_size", "stride"):
            value = getattr(self, name)
            if isinstance(value, int):
                object.__setattr__(self, name, (value, value))
            elif isinstance(value, list):
                object.__setattr__(self, name, tuple(value))
        check_values(self)
        for name, least in (("channels", 1), ("width", 1), ("depth", 1), ("heads", 1), ("mlp_width", 1), ("classes", 0)):
            if name not in self.left_open:
                at_least(self, name, least)
        for name in ("registers", "head_hidden"):
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
        if self.positions == "rotary" and (self.width // self.heads) % 4:
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
        if self.positions in ("sincos", "rotary"):
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


@dataclass(frozen=True)
class DataConfig:
    """Which pictures, how they are split, and what is done to them before the model sees them."""

    name: str = "digits"
    """A name from `vitral data list`, `folder:PATH`, `csv:FILE`, `parquet:FILE`, `hf:NAME` or `webdataset:PATTERN`."""
    root: str | None = None
    """Where data sets are kept; None: $VITRAL_DATA or ~/.cache/vitral/data."""
    validation: float = 0.1
    """Share of the training pictures carved out for validation, class by class (an own validation folder takes precedence)."""
    split_seed: int = 0
    """Seed of the carved splits; the same in every run that is to be compared."""
    subset: float | None = None
    """Train on this many pictures (≥ 1) or this share (< 1), nested and class-balanced; None: all."""
    augment: str = "standard"
    """none, light, standard, resized-crop, strong, randaugment, trivialaugment, autoaugment."""
    mixup: float | None = None
    """Share of batches mixed pixel-wise; None: what the policy says."""
    cutmix: float | None = None
    """Share of batches mixed by pasting a rectangle; None: what the policy says."""
    resize: Literal["short", "squash"] | None = None
    """None: as the weights' origin says, else short side + centre crop (`squash` for data that is already small)."""
    mean: tuple[float, ...] | None = None
    """Per channel; None: as the weights' origin says, else the data set's own."""
    std: tuple[float, ...] | None = None
    """Per channel; None: where the mean comes from."""
    workers: int = 0
    """Processes that decode pictures when the set is streamed; 0: in this process."""
    placement: Literal["auto", "device", "stream"] = "auto"
    """device: whole set on the device as bytes; stream: decode while training; auto: device when it is small."""
    on_bad_image: Literal["fail", "skip"] = "fail"
    """Stop at a file that cannot be read, or pass over it."""
    class_weights: bool = False
    """Weigh the loss against unbalanced classes."""

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            if isinstance(value := getattr(self, name), list):
                object.__setattr__(self, name, tuple(value))
        check_values(self)
        if not 0 <= self.validation < 1:
            raise ConfigError(f"validation {self.validation} is not a share", "use a number from 0 to below 1, such as 0.1")
        if self.subset is not None and self.subset <= 0:
            raise ConfigError(f"subset {self.subset} is not positive", "use a share below 1 or a number of pictures")
        at_least(self, "workers", 0)
        if not self.name:
            raise ConfigError("no data set given", "use a name from `vitral data list` or folder:PATH")


@dataclass(frozen=True)
class TrainConfig:
    """How the one loop runs."""

    epochs: float = 20
    """Passes over the training pictures; fractions are meant."""
    max_seconds: float | None = None
    """Stop (with the schedule scaled to it) after this training time; for studies with a budget of seconds."""
    batch_size: int = 128
    """Pictures per optimizer step, over all processes."""
    accumulate: int = 1
    """Split each batch into this many micro-batches to save memory; the result is the same."""
    optimizer: Literal["adamw", "sgd", "muon"] = "adamw"
    """muon: batched Muon for the matrices of the blocks, AdamW for the rest."""
    lr: float = 1e-3
    """Peak learning rate (of Muon's matrices, when the optimizer is muon)."""
    adam_lr: float = 2e-3
    """Peak learning rate of what Muon leaves to AdamW."""
    weight_decay: float = 0.05
    """Pull of the weights towards zero, times the learning rate."""
    momentum: float = 0.95
    """Of SGD and of Muon."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of AdamW's two averages, of the gradient and of its square."""
    schedule: Literal["cosine", "linear", "step", "constant"] = "cosine"
    """How the learning rate falls after the warm-up; step: at the milestones."""
    warmup: float = 0.05
    """Share of all steps with a linearly rising learning rate."""
    milestones: tuple[float, ...] = (0.55, 0.83)
    """For schedule = step: shares of the run after which the learning rate is multiplied by `decay`."""
    decay: float = 0.1
    """For schedule = step: what the learning rate is multiplied by."""
    final_lr: float = 0.0
    """Share of the peak learning rate that cosine and linear end at."""
    layer_decay: float = 1.0
    """Learning rate of each block relative to the one above it; 1: all alike."""
    clip: float | None = 1.0
    """Largest gradient norm; None: unclipped."""
    label_smoothing: float = 0.0
    """Share of the target spread over all classes."""
    mixing_off: float = 0.0
    """Last share of the run without MixUp and CutMix."""
    ema: float | None = None
    """Decay of the exponential moving average (EMA) of the weights; None: no EMA. When set, it is what is evaluated and saved."""
    keep: Literal["last", "best"] = "last"
    """Which weights are final: the last ones, or those best on validation."""
    patience: int | None = None
    """Stop after this many evaluations without a better validation accuracy."""
    tune: Literal["all", "attention", "head"] = "all"
    """Which parameters learn: all, attention layers + head, head alone."""
    head_start: Literal["as-is", "probe", "probe+mean"] | None = None
    """How the head of a fine-tuned model starts: as-is: from the weights where the classes are as many, else new; or as a linear probe
    of the frozen features, which keeps them from being spoilt when there are few pictures; +mean: it also reads the mean of the patches.
    None: as a probe where the pictures are few and the head would be new, else as-is."""
    teacher: str | None = None
    """A model to distil from: anything `vitral.load` takes."""
    teacher_weight: float = 0.5
    """Share of the loss that comes from the teacher."""
    teacher_temperature: float = 1.0
    """Softens both answers before they are compared; above 1 the teacher's second thoughts count more."""
    token_drop: float = 0.0
    """Share of patches left out, other ones for each picture, until `token_drop_until`: cheaper steps, and a regulariser."""
    token_drop_until: float = 0.5
    """Share of the run after which the model sees all patches."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """auto: bf16 on a GPU that has it, fp32 otherwise."""
    compile: Literal["auto", "yes", "no", "max"] = "auto"
    """auto: on a GPU; max: the compiler also tries out kernels, for long runs."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1 or mps; auto: a GPU where there is one."""
    threads: int | None = None
    """CPU threads; None: torch's own choice. Fixed numbers make runs repeatable bit for bit."""
    seed: int = 0
    """Of the first weights, the order of the pictures and their augmentation."""
    test: bool = True
    """Open the test split at the end; off for runs that only choose a setting: they end with validation."""
    evaluate_every: float = 1.0
    """Epochs between validations."""
    checkpoint_every: float = 60.0
    """Seconds between resumable checkpoints (0: every step); one is also written when a run is interrupted and at its end."""
    snapshots: int = 0
    """Number of weight snapshots at log-spaced steps, for films."""
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"
    """Under torchrun: DDP, or FSDP2 with sharded weights; auto: DDP."""
    tensorboard: bool = False
    """Write the journal for TensorBoard too, into the run folder."""
    wandb: bool = False
    """Send the journal to Weights & Biases too."""

    def __post_init__(self) -> None:
        for name in ("betas", "milestones"):
            if isinstance(value := getattr(self, name), list):
                object.__setattr__(self, name, tuple(value))
        check_values(self)
        for name in ("batch_size", "accumulate"):
            at_least(self, name, 1)
        if self.epochs <= 0:
            raise ConfigError(f"epochs {self.epochs} is not positive", "use 1 or more, or a fraction such as 0.5")
        if self.batch_size % self.accumulate:
            raise ConfigError(
                f"batch_size {self.batch_size} cannot be split into {self.accumulate} equal micro-batches",
                "choose accumulate as a divisor of the batch size",
            )
        if self.lr <= 0 or self.adam_lr <= 0:
            raise ConfigError("the learning rate must be positive", "use something like 1e-3")
        for name in ("warmup", "label_smoothing", "mixing_off", "token_drop", "token_drop_until", "teacher_weight", "final_lr"):
            check_share(self, name, closed=name in ("teacher_weight", "token_drop_until", "mixing_off"))
        if self.ema is not None and not 0 < self.ema < 1:
            raise ConfigError(f"ema {self.ema} does not lie between 0 and 1", "use something like 0.999, or leave it out")
        if self.evaluate_every <= 0:
            raise ConfigError(f"evaluate_every {self.evaluate_every} is not positive", "use 1 for every epoch")
        if self.weight_decay < 0:
            raise ConfigError(f"weight_decay {self.weight_decay} is negative", "use something like 0.05, or 0 for none")
        for name in ("clip", "max_seconds"):
            if (value := getattr(self, name)) is not None and value <= 0:
                raise ConfigError(f"{name} {value} is not positive", "use more than 0, or leave it out")
        if self.patience is not None:
            at_least(self, "patience", 1)
        at_least(self, "snapshots", 0)
        if not 0 < self.layer_decay <= 1:
            raise ConfigError(f"layer_decay {self.layer_decay} does not lie in (0, 1]", "use something like 0.75, or 1 for none")


TUNED = ("image_size", "dropout", "drop_path")
"""What a run may say about a model that comes with weights; they say the rest."""


@dataclass(frozen=True)
class RunConfig:
    """One training: everything that decides its result."""

    name: str = "digits"
    model: ModelConfig = field(default_factory=lambda: ModelConfig().opened())
    """What it leaves open is decided by the data, or by the weights where there are some."""
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    weights: str | None = None
    """Start from these weights (anything `vitral.load` takes) instead of from scratch: they say what the model is."""

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name or self.name.startswith("."):
            raise ConfigError(f"run name {self.name!r} cannot be a folder name", "use letters, digits and dashes")
        if self.train.head_start not in (None, "as-is") and self.weights is None:
            raise ConfigError(f"head_start = {self.train.head_start} needs weights", "name them with --from, or set head_start = as-is")


def to_dict(config: Any) -> dict[str, Any]:
    """A config as plain JSON values."""
    return {
        f.name: to_dict(value)
        if dataclasses.is_dataclass(value := getattr(config, f.name))
        else list(value)
        if isinstance(value, tuple)
        else value
        for f in dataclasses.fields(config)
    }


def from_dict(kind: type[C], data: dict[str, Any], where: str = "config") -> C:
    """A config from plain JSON values; unknown names and wrong types are refused by name."""
    if not isinstance(data, dict):
        raise ConfigError(f"{where} is not an object but {type(data).__name__}", "write it with to_dict or copy a run's config.json")
    hints = typing.get_type_hints(kind)
    names = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(set(data) - names):
        raise ConfigError(f"{where} has no field {', '.join(unknown)}", f"known fields: {', '.join(sorted(names))}")
    values: dict[str, Any] = {}
    for name, value in data.items():
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            values[name] = from_dict(typing.cast("type[Any]", hint), value, f"{where}.{name}")
        elif value is None and name in OPEN and issubclass(kind, ModelConfig):
            values[name] = None
        elif fitted := fit_value(hint, value):
            values[name] = fitted[0]
        else:
            raise ConfigError(f"{where}.{name} is {value!r}", f"it must be {say_kind(hint)}")
    return kind(**values)


def _by(size: tuple[int, ...]) -> str:
    return "×".join(map(str, size))


def _size(size: tuple[int, ...]) -> str:
    return str(size[0]) if len(set(size)) == 1 else _by(size)
