"""What the gallery shows: every figure with its command, its model and pictures, what one sees and what one must not conclude."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DRAWN = Path(__file__).parent / "images/architecture.svg"
VIT = "vit_tiny_patch16_224.safetensors"


@dataclass(frozen=True)
class Model:
    title: str
    source: str
    weights: str
    """In the work folder."""


@dataclass(frozen=True)
class Photograph:
    title: str
    author: str
    licence: str
    source: str


@dataclass(frozen=True)
class View:
    """How a page is photographed."""

    part: str = ""
    """A selector; empty: the window."""
    width: int = 1180
    height: int = 800
    scale: float = 1.25
    hash: str = ""
    ready: str = ""
    steps: tuple[Callable[[Any], Any], ...] = ()
    """What is done on the page before."""


@dataclass(frozen=True)
class Figure:
    name: str
    """docs/images/gallery/NAME.webp."""
    chapter: str
    title: str
    command: str
    """As typed, one line each."""
    made: str
    """What the command leaves: a picture, a moving picture or a page."""
    sees: str
    never: str
    """What one must not conclude."""
    model: str = ""
    pictures: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """What must have been made before: keys of PREPARED."""
    width: int = 1200
    view: View = field(default_factory=View)


MODELS = {
    "vit-tiny": Model(
        "ViT-Ti/16 at 224 pixels",
        "timm's `vit_tiny_patch16_224` (AugReg: ImageNet-21k, then ImageNet-1k; Steiner and others 2021; Apache 2.0), 5.7 M parameters",
        VIT,
    ),
    "digits": Model(
        "the digits run",
        "`vitral train digits --threads 1 --snapshots 24 --out runs/digits`: a minute of one CPU core, 98.9 % on its 360 test pictures",
        "runs/digits/model.safetensors",
    ),
    "mae": Model(
        "the masked autoencoder",
        "`vitral pretrain fashion-mnist --method mae …` as below: one epoch without labels, minutes of one CPU core",
        "runs/mae/model.safetensors",
    ),
}

PHOTOGRAPHS = {
    "cat.jpg": Photograph("Chelsea the cat", "Stéfan van der Walt", "CC0", "scikit-image, `data.chelsea`"),
    "espresso.jpg": Photograph(
        "a cup of espresso", "Rachel Michetti, courtesy of Pikolo Espresso Bar", "CC0", "scikit-image, `data.coffee`"
    ),
    "astronaut.jpg": Photograph("Eileen Collins", "NASA", "public domain", "scikit-image, `data.astronaut`"),
    "rocket.jpg": Photograph("a Falcon 9 with DSCOVR", "SpaceX", "public domain", "scikit-image, `data.rocket`"),
    "digits": Photograph("digits of 8 × 8 pixels", "E. Alpaydin, C. Kaynak (UCI, 1998)", "CC BY 4.0", "scikit-learn; `vitral data list`"),
    "fashion-mnist": Photograph("Fashion-MNIST", "Zalando SE (Xiao, Rasul, Vollgraf 2017)", "MIT", "`vitral data get fashion-mnist`"),
}

PREPARED = {
    "runs/digits": "vitral train digits --threads 1 --snapshots 24 --out runs/digits",
    "runs/mae": "vitral pretrain fashion-mnist --method mae --epochs 1 --image-size 28 --patch-size 4 "
    "--set width=96 depth=4 heads=4 mlp_width=192 decoder_width=64 --threads 1 --out runs/mae",
    "runs/fight": "vitral compare digits --models vit-small,cnn,hybrid-small --budget samples=10000 --lrs 3e-3 --batch-size 64 "
    "--out runs/fight",
    "explorer.html": f"vitral explore {VIT} photos/cat.jpg --export explorer.html",
}
"""What several figures share → the command that makes it."""

LOOK, INSIDE, LEARNING, TRUST, COMPARE, EXPLORE, HOUSE = (
    "Where a model looks",
    "What is inside",
    "How it learns",
    "What to trust",
    "Fair comparisons",
    "The explorer",
    "The house itself",
)

FIGURES = (
    Figure(
        "prediction",
        LOOK,
        "Somebody else's weights, named answers",
        f"vitral figures {VIT} photos/espresso.jpg --only prediction,classes",
        "figures/espresso-prediction.png",
        "A file of weights with nothing beside it: what model it is was worked out from its tensors, and the answers have names.",
        "that 93.6 % is how often such an answer is right: it is this model's confidence, on one photograph.",
        "vit-tiny",
        ("espresso.jpg",),
    ),
    Figure(
        "look",
        LOOK,
        "Eight maps of one photograph",
        f"vitral look {VIT} photos/cat.jpg --out sheets",
        "sheets/cat.png",
        "The answer, then what eight methods mark in the part of the photograph that the model sees (white frame): they disagree.",
        "that one of them shows why: which says something true about this model is what [an audit](results/audit.md) measures.",
        "vit-tiny",
        ("cat.jpg",),
        width=1400,
    ),
    Figure(
        "classes",
        LOOK,
        "One photograph, three answers",
        f"vitral figures {VIT} photos/espresso.jpg --only prediction,classes",
        "figures/espresso-classes.png",
        "Relevance for the three most probable classes: the coffee speaks for *espresso*, rim and handle for *cup* and *coffee mug*.",
        "that all three were seen: each map has its own scale, and a class of 0.9 % gets one as bright as a class of 93.6 %.",
        "vit-tiny",
        ("espresso.jpg",),
    ),
    Figure(
        "attention",
        LOOK,
        "Where the class token looks, block by block and head by head",
        f"vitral figures {VIT} photos/cat.jpg --only attention --token 5,4",
        "figures/cat-attention.png",
        "All 36 heads: early blocks look everywhere, single heads pick out eyes and nose, late ones fix on the corners.",
        "that a bright patch matters: the corners are where attention is parked, and each map is scaled by its own 97th percentile.",
        "vit-tiny",
        ("cat.jpg",),
    ),
    Figure(
        "attention-patch",
        LOOK,
        "Where one patch looks",
        f"vitral figures {VIT} photos/cat.jpg --only attention --token 5,4",
        "figures/cat-attention-patch.png",
        "The patch on the cat's left-hand eye (white square): near patches first, then the other eye, then what all patches look at.",
        "that the eyes were recognised as a pair: two patches that are alike attend to each other anyway.",
        "vit-tiny",
        ("cat.jpg",),
    ),
    Figure(
        "attention-matrix",
        INSIDE,
        "Whole attention matrices",
        f"vitral figures {VIT} photos/cat.jpg --only attention --token 5,4",
        "figures/cat-attention-matrix.png",
        "197 × 197 weights a head: diagonals are heads that look beside themselves, columns are tokens that all others look at.",
        "that a head is of one kind: this is one photograph, and the numbers of heads say nothing about their order.",
        "vit-tiny",
        ("cat.jpg",),
        width=1000,
    ),
    Figure(
        "positions",
        INSIDE,
        "What the positions have learnt",
        f"vitral figures {VIT} --only positions,filters",
        "figures/positions.png",
        "Each small map compares one place's position embedding with all others: its own row and column light up, so the grid was learnt.",
        "that the model knows distances: the bands come back every few patches, a place far away can be as alike as a near one.",
        "vit-tiny",
        width=1000,
    ),
    Figure(
        "filters",
        INSIDE,
        "What the first layer looks for",
        f"vitral figures {VIT} --only positions,filters",
        "figures/filters.png",
        "The first 28 principal components of the patch embedding: blobs, edges and gratings of colour and of light and dark.",
        "that these are the filters: they are components of all 192, and the first explains 5 % of them.",
        "vit-tiny",
        width=1000,
    ),
    Figure(
        "distance",
        INSIDE,
        "How far the heads look",
        f"vitral figures {VIT} photos --only distance",
        "figures/distance.png",
        "Mean attention distance of every head on four photographs: early heads look near or far, at the end all look far.",
        "that late heads see more: beyond the dashed line they look farther than even attention would, at the corners.",
        "vit-tiny",
        ("cat.jpg", "espresso.jpg", "astronaut.jpg", "rocket.jpg"),
    ),
    Figure(
        "colours",
        INSIDE,
        "Patches that are alike have one colour",
        f"vitral figures {VIT} photos/cat.jpg --only colours,norms",
        "figures/cat-colours.png",
        "Three principal components of the tokens as red, green and blue: with depth, eyes, fur and background become things of their own.",
        "that a colour has a meaning: it holds within one panel only, and the grey patches are artefacts, left out of the components.",
        "vit-tiny",
        ("cat.jpg",),
    ),
    Figure(
        "norms",
        INSIDE,
        "Artefact tokens",
        f"vitral figures {VIT} photos/cat.jpg --only colours,norms",
        "figures/cat-norms.png",
        "From block 7 on a few patches have vectors many times as long as all others: scratch space, which maps show as bright corners.",
        "that something is broken: the answer uses them; but no map should be read without knowing that they are there.",
        "vit-tiny",
        ("cat.jpg",),
    ),
    Figure(
        "lens",
        INSIDE,
        "What the head would say after every block",
        f"vitral lens {VIT} photos/cat.jpg --out lens",
        "lens/cat-lens.png",
        "The last layer read early: *tiger cat* leads after block 10, *Egyptian cat* wins in the last; below, what each patch is called.",
        "that the early blocks think of fences and ladles: the head was trained for the last block's class token alone.",
        "vit-tiny",
        ("cat.jpg",),
        width=1000,
    ),
    Figure(
        "parts",
        INSIDE,
        "A logit taken apart",
        f"vitral lens {VIT} photos/cat.jpg --out lens",
        "lens/cat-parts.png",
        "What each head and each MLP adds to the logit directly; the parts and what is left sum to it.",
        "that a head near zero does nothing: what it changes in later blocks is counted there.",
        "vit-tiny",
        ("cat.jpg",),
    ),
    Figure(
        "ablation",
        INSIDE,
        "Heads and blocks switched off",
        f"vitral figures {VIT} photos/cat.jpg --only ablation,shuffled",
        "figures/cat-ablation.png",
        "How the probability of *Egyptian cat* changes without each head, attention, MLP or block: one head of block 2 carries it.",
        "that the others are superfluous: one at a time, on one photograph; two that stand in for each other both look useless.",
        "vit-tiny",
        ("cat.jpg",),
        width=1000,
    ),
    Figure(
        "shuffled",
        INSIDE,
        "Patches in another order",
        f"vitral figures {VIT} photos/cat.jpg --only ablation,shuffled",
        "figures/cat-shuffled.png",
        "With positions the shuffled cat is none; with the positions taken out the answer is the same in every order.",
        "that the model without positions would do: it was not trained so, and its answer for the cat is another one.",
        "vit-tiny",
        ("cat.jpg",),
        width=1000,
    ),
    Figure(
        "film",
        LEARNING,
        "Attention forming while a model learns",
        "vitral film runs/digits --format webp",
        "runs/digits/film/film.webp",
        "The 500 steps of a training: what speaks for the class, where the head's token looks in each block, the lens, positions, filters.",
        "that early maps mean anything: those of an untrained model are noise in the shape of the picture.",
        "digits",
        ("digits",),
        ("runs/digits",),
        width=800,
    ),
    Figure(
        "film-sheet",
        LEARNING,
        "The same on one sheet",
        "vitral film runs/digits --format webp",
        "runs/digits/film/sheet.png",
        "Eight of the 22 moments: the lens and the positions take shape between step 39 and step 214, filters hardly move.",
        "that attention led and the answer followed: both change at once, and this is one run.",
        "digits",
        ("digits",),
        ("runs/digits",),
    ),
    Figure(
        "masked",
        LEARNING,
        "Hidden patches, rebuilt",
        "vitral report runs/mae",
        "runs/mae/report.html",
        "A masked autoencoder on its validation pictures: what it saw, what it made of the hidden three quarters, the picture itself.",
        "that a sharp picture means good features: what they are worth is what the probe at the end of the run measures.",
        "mae",
        ("fashion-mnist",),
        ("runs/mae",),
        view=View(part="figure:has-text('hidden')"),
    ),
    Figure(
        "audit",
        TRUST,
        "Which explanation to trust",
        "vitral audit runs/digits digits",
        "runs/digits/audit/figures/a-scores.png",
        "Eight methods against noise, an edge detector and a blob in the middle: here the two with gradients through all blocks pass.",
        "that they pass elsewhere: verdicts belong to this model and these 12 pictures, and the intervals show how little 12 are.",
        "digits",
        ("digits",),
        ("runs/digits",),
        width=1000,
    ),
    Figure(
        "audit-planted",
        TRUST,
        "A patch that decides, and who finds it",
        "vitral audit runs/digits digits",
        "runs/digits/audit/figures/c1-planted-patch.png",
        "A chequered square was planted and a head trained to go by it: gradient rollout and relevance mark it, plain attention does not.",
        "much from one picture: the figure above has all of them. That the blob in the middle finds it is luck of the place.",
        "digits",
        ("digits",),
        ("runs/digits",),
        width=1000,
    ),
    Figure(
        "worst",
        TRUST,
        "The most confident errors",
        "vitral look runs/digits --worst 4 --out worst",
        "worst/worst.html",
        "The errors on test with the map for the answer, the map for the truth, and the nearest pictures that the model learnt from.",
        "that the map shows the mistake: both maps are of one picture and one model, and several of these digits are hard for people, too.",
        "digits",
        ("digits",),
        ("runs/digits",),
        view=View(part="main", height=900),
    ),
    Figure(
        "compare",
        COMPARE,
        "Three families under one budget",
        "vitral report runs/fight",
        "runs/fight/report.html",
        "The same splits, augmentation and number of samples for each, three seeds; what the intervals carry is said in words.",
        "that convolution wins: 10,000 samples at one learning rate are little training, and a ViT gains most from more.",
        "",
        ("digits",),
        ("runs/fight",),
        view=View(width=1000, height=720),
    ),
    Figure(
        "explorer",
        EXPLORE,
        "The explorer",
        PREPARED["explorer.html"],
        "explorer.html",
        "Every head of the model on a wall that follows the pointer; the map on the left is relevance for the answer.",
        "that a bright tile matters: each is scaled by itself, so that nearly even attention stays dark.",
        "vit-tiny",
        ("cat.jpg",),
        view=View("#work", hash="#method=relevance", ready="body.ready", width=1280, height=900),
    ),
    Figure(
        "story",
        EXPLORE,
        "The story: one patch asks, all answer",
        PREPARED["explorer.html"],
        "explorer.html",
        "Step 4 of 7, on one's own picture in one's own model: a query, the keys, and the score with all its numbers.",
        "that the best answer is what the patch takes over: what is mixed in are values, two steps further down.",
        "vit-tiny",
        ("cat.jpg",),
        view=View(".step >> nth=3", hash="#view=story", ready=".step", width=1280, height=900),
    ),
    Figure(
        "story-end",
        EXPLORE,
        "The story's end: why a map is not a reason",
        PREPARED["explorer.html"],
        "explorer.html",
        "The last step covers what the map marks, then as many patches at random, and says which took more of the answer.",
        "that attention is always beside the point: it is measured on each picture anew, and said only where it was.",
        "vit-tiny",
        ("cat.jpg",),
        view=View(".step >> nth=6", hash="#view=story", ready=".step", width=1280, height=900),
    ),
    Figure(
        "importance",
        EXPLORE,
        "How many heads can go",
        PREPARED["explorer.html"],
        "explorer.html",
        "Each head switched off once, then the least important removed first: ten can go before half of the confidence is lost.",
        "that the model could be pruned so: this is one photograph, and the dotted line shows how soon a random order loses it.",
        "vit-tiny",
        ("cat.jpg",),
        width=900,
        view=View("#panel-surgery", hash="#view=surgery", ready="#panel-surgery svg", width=1280, height=900),
    ),
    Figure(
        "architecture",
        HOUSE,
        "The parts of Vitral, from their imports",
        "python docs/make_architecture.py",
        str(DRAWN),
        "Every arrow is an import that is in the code; a part imports from rows below its own. A test compares drawing and code.",
        "how much runs through an arrow: one import and a hundred look alike.",
    ),
)
