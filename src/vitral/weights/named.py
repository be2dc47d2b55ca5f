"""Names that a library owns: `timm:NAME`, `torchvision:NAME`, `hf:NAME`. It fetches (with its own progress and cache), we adopt."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from vitral.base.errors import NotInstalledError, UsageError, VitralError, WeightsError, one_of
from vitral.base.lazy import how_to_install, needed
from vitral.base.network import asking_the_hub
from vitral.base.progress import say
from vitral.config import ModelConfig
from vitral.model.classifier import Classifier
from vitral.weights.adopt import adopt, converted
from vitral.weights.assemble import assemble
from vitral.weights.declared import Declared, declare
from vitral.weights.detect import detect
from vitral.weights.library_settings import of_preprocessor, of_torchvision_weights
from vitral.weights.proof import Proof, prove
from vitral.weights.read import read_weights, reason

RESNETS = ("resnet18", "resnet50", "resnet152")
_OFFLINE = (
    "is there a network? Without one, fetch the weights elsewhere and give the file: vitral.load('FILE'); "
    "filled caches (HF_HOME, TORCH_HOME) are used too"
)
_NOT_PLAIN = re.compile(
    "siglip|relpos|rpn|18x2|36x1|xp_|pe_|swin|_r26_|_r50_|_r_s|resnet|so150m|rope|map|hybrid|dinov3|sapiens2|lingbot|mci|pwee|dwee|dlittle"
)
"""In names of timm: more than a plain ViT. They are not listed; those that Vitral has the parts of can be opened all the same."""


def fetch(library: str, name: str, declared: Declared | None = None) -> Classifier:
    """The pretrained model of that name as our own, proved against its source."""
    spec = f"{library}:{name}"
    try:
        make = LIBRARIES[library]
        say(f"{spec}: asking {library} for the weights")
        module, from_library = make(name)
    except VitralError:
        raise
    except ImportError as error:
        raise WeightsError(f"{spec} needs the library {error.name or library}", how_to_install("timm")) from None
    except Exception as error:  # each library has its own errors for a lost network
        raise WeightsError(f"{spec} could not be fetched ({type(error).__name__}: {reason(error)})", _OFFLINE) from error
    model = adopt(module, declared=(declared or Declared()).or_else(from_library))
    worst = max(model.origin.parity.values())
    say(f"{spec}: {sum(p.numel() for p in model.parameters()):,} parameters; largest difference from the source {worst:.0e}")
    return model


def build_without_weights(library: str, name: str) -> Classifier:
    """The model of that name as it is built, with random weights: enough to plan with. What only the network could say is refused."""
    spec = f"{library}:{name}"
    try:
        module, from_library = LIBRARIES[library](name, False)
    except VitralError:
        raise
    except ImportError as error:
        raise WeightsError(f"{spec} needs the library {error.name or library}", how_to_install("timm")) from None
    except Exception as error:  # each library has its own errors for what is not there
        raise WeightsError(
            f"{spec} is not on this machine, and nothing else says how it is built ({type(error).__name__})",
            "fetch it: `vitral weights convert hf:NAME FOLDER`, then plan --from FOLDER; or plan without --from: --model b/16",
        ) from error
    say(f"{spec}: planned as it is built; a training fetches its weights")
    return converted(module, from_library)[0]


def check_named(library: str, name: str) -> Any:
    """Refuse a name that the library does not have, as far as it says so without a network; of torchvision, the weights it has."""
    model, _, chosen = name.partition(".")
    if library == "timm":
        import timm

        if not timm.is_model(model):
            raise one_of("timm model", name, timm.list_models("*vit*") + timm.list_models("*deit*"))
    if library != "torchvision":
        return None
    models = needed("torchvision.models", f"torchvision:{name}")
    if model not in (offered := _offered(models)):
        raise one_of("torchvision model", model, offered)
    entries: Any = models.get_model_weights(model)
    if chosen and chosen not in entries.__members__:
        raise one_of(f"weights of {model}", chosen, list(entries.__members__))
    return entries


def _timm(name: str, weights: bool = True) -> tuple[nn.Module, Declared]:
    import timm

    check_named("timm", name)
    if not weights:
        return timm.create_model(name, pretrained=False), Declared()
    with asking_the_hub():
        return timm.create_model(name, pretrained=True), Declared()


def _torchvision(name: str, weights: bool = True) -> tuple[nn.Module, Declared]:
    models = needed("torchvision.models", f"torchvision:{name}")
    model, _, chosen = name.partition(".")
    entries: Any = check_named("torchvision", name)
    entry = entries[chosen] if chosen else entries.DEFAULT
    if not weights:
        size = {"image_size": entry.transforms().crop_size[0]} if model.startswith("vit_") else {}
        return models.get_model(model, weights=None, **size), of_torchvision_weights(entry)
    entry.get_state_dict(progress=True, check_hash=True)  # into the cache first: making the model takes longer than failing
    return models.get_model(model, weights=entry), of_torchvision_weights(entry)


def _huggingface(name: str, weights: bool = True) -> tuple[nn.Module, Declared]:
    import transformers

    with asking_the_hub() if weights else contextlib.nullcontext():
        return _from_pretrained(transformers, name, weights)


def _from_pretrained(transformers: Any, name: str, weights: bool) -> tuple[nn.Module, Declared]:
    """Without `weights`: from what lies in the cache alone, and with random ones."""
    here = {} if weights else {"local_files_only": True}
    try:
        config = transformers.AutoConfig.from_pretrained(name, **here)
    except ValueError as error:
        if "does not recognize this architecture" not in str(error):
            raise
        raise WeightsError(
            f"transformers {transformers.__version__} does not have the architecture of hf:{name}",
            "install a newer one, for DINOv3 4.56 or newer: pip install -U transformers",
        ) from error
    classifier = any("ForImageClassification" in kind for kind in (config.architectures or []))
    kind: Any = transformers.AutoModelForImageClassification if classifier else transformers.AutoModel
    if config.model_type == "clip" and not classifier:
        kind = transformers.CLIPVisionModelWithProjection
    if "DeiTForImageClassificationWithTeacher" in (config.architectures or []):
        kind = transformers.DeiTForImageClassificationWithTeacher
    if weights:
        module = kind.from_pretrained(name)
    elif hasattr(kind, "from_config"):
        module = kind.from_config(config)
    else:
        module = kind(getattr(config, "vision_config", config))
    try:
        settings = transformers.AutoImageProcessor.from_pretrained(name, **here).to_dict()
    except (OSError, ValueError):
        settings = {}  # some repositories have no preprocessor: what it would say is then assumed
    return module, of_preprocessor(settings, f"the image processor of {name}")


def prove_file(path: str | Path, spec: str, heads: int | None = None) -> Proof:
    """A file's import against the library's own module with the same weights: `prove_file("vit.pth", "timm:vit_tiny_patch16_224")`."""
    library, _, name = spec.partition(":")
    if library not in ("timm", "torchvision") or not name:
        raise UsageError(f"{spec!r} names no module to compare with", "use timm:NAME or torchvision:NAME")
    tensors = detect(read_weights(path).tensors, Path(path).name).tensors
    model = assemble(tensors, Path(path).name, declare("set by the caller", {"heads": heads}))
    try:
        module = _timm_empty(name, model.config) if library == "timm" else _torchvision_empty(name, model.config)
        module.load_state_dict(tensors)
    except (RuntimeError, TypeError) as error:
        raise WeightsError(f"the weights of {path} do not fit {spec} ({reason(error)})", "name the module they were made with") from None
    return prove(model, module, name=spec)


def _timm_empty(name: str, config: ModelConfig) -> nn.Module:
    import timm

    check_named("timm", name)
    return timm.create_model(name, num_classes=config.classes, img_size=config.image_size, in_chans=config.channels)


def _torchvision_empty(name: str, config: ModelConfig) -> nn.Module:
    models = needed("torchvision.models", f"torchvision:{name}")
    if name not in (offered := _offered(models)):
        raise one_of("torchvision model", name, offered)
    size = {"image_size": config.image_size[0]} if name.startswith("vit_") else {}
    return models.get_model(name, weights=None, num_classes=config.classes, **size)


LIBRARIES: dict[str, Callable[..., tuple[nn.Module, Declared]]] = {"timm": _timm, "torchvision": _torchvision, "hf": _huggingface}


def names() -> dict[str, list[str]]:
    """The pretrained names that the installed libraries offer; timm's are those of its plain ViTs and DeiTs."""
    names_by_library: dict[str, list[str]] = {"torchvision": [], "timm": []}
    with contextlib.suppress(NotInstalledError):
        names_by_library["torchvision"] = _offered(needed("torchvision.models", "its names"))
    try:
        import timm
    except ImportError:
        return names_by_library
    plain = [name for name in timm.list_models(["vit_*", "deit*"], pretrained=True) if not _NOT_PLAIN.search(name)]
    return {**names_by_library, "timm": plain}


def _offered(models: Any) -> list[str]:
    """The names in torchvision.models that Vitral has the parts of."""
    return [name for name in models.list_models(module=models) if name.startswith("vit_") or name in RESNETS]
