"""What the gallery shows: every figure with its command, its model and pictures, what one sees and what one must not conclude."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

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
    crop: tuple[float, float, float, float] = (0, 0, 1, 1)
    """Left, top, right and bottom of the part that is shown, in shares of what was made."""
    points: float = 0
    """Size of its smallest label; 0: not measured."""
    drawn_at: int = 200
    """Dots per inch of a figure."""


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
        "`vitral pretrain fashion-mnist --method mae …` as above: one epoch without labels, minutes of one CPU core",
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

PRETRAINED = (
    "vitral pretrain fashion-mnist --method mae --epochs 1 --image-size 28 --patch-size 4 "
    "--set width=96 depth=4 heads=4 mlp_width=192 decoder_width=64 --threads 1 "
    "--skip-probe --out runs/mae"
)

PREPARED = {
    "runs/digits": "vitral train digits --threads 1 --snapshots 24 --out runs/digits",
    "runs/mae": PRETRAINED,
    "runs/fair": "vitral compare digits --models vit-small,cnn@parameters,hybrid-small@parameters --budget samples=20000 "
    "--lrs 3e-3,9e-3,2.7e-2 --out runs/fair",
    "runs/demo": "vitral demo",
    "vit_tiny": f"vitral weights convert {VIT} vit_tiny",
    "vit_tiny/audit": "vitral audit vit_tiny pets/test --pictures 48 --methods attention,rollout,gradient_rollout,relevance,gradcam",
    "runs/digits-cnn": "vitral train digits --model cnn --epochs 5 --threads 1 --out runs/digits-cnn",
    "tiny-112": f"vitral weights convert {VIT} tiny-112 --image-size 112 112",
    "explorer.html": f"vitral explore {VIT} photos/cat.jpg --export explorer.html",
}
"""What several figures share → the command that makes it."""

LOOK, INSIDE, LEARNING, TRUST, COMPARE, EXPLORE = (
    "Where a model looks",
    "What is inside",
    "How it learns",
    "What to trust",
    "Fair comparisons",
    "The explorer",
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
        "that the model would do without positions: the same answer in every order need not be the right one.",
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
        PRETRAINED,
        "runs/mae/figures/learning-rebuilt.png",
        "A masked autoencoder after one epoch, on validation pictures: what it was shown, what it made of the rest, the picture itself.",
        "that it guesses brightness: mean and spread of every hidden patch are given. And sharp pictures need not mean good features.",
        "mae",
        ("fashion-mnist",),
        width=1400,
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
        "vitral eval runs/digits digits --out scored\nvitral look runs/digits scored --worst 4 --training-data digits --out worst",
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
        "vitral report runs/fair",
        "runs/fair/report.html",
        "A ViT, a CNN of as many parameters, a hybrid whose stem alone is larger: same splits and samples, three seeds, said in words.",
        "that convolution wins: 20,000 samples of digits are little training, and the page says itself what could change the order.",
        "",
        ("digits",),
        ("runs/fair",),
        view=View(width=1000, height=820, hash="#part-1"),
    ),
    Figure(
        "scale",
        COMPARE,
        "Accuracy against the number of training pictures",
        "vitral scale digits --kind data --models vit-small,cnn@parameters --sizes 0.1,0.3,1 --budget samples=6000 --lrs 9e-3 --yes "
        "--out runs/scale",
        "runs/scale/figures/accuracy-against-data.png",
        "With 6,000 samples for each size neither a ViT nor a CNN of as many parameters gains from more pictures: both lack training.",
        "that more data hurts or does not help: at equal samples, more pictures are each seen less often, and the bands are wide.",
        "",
        ("digits",),
    ),
    Figure(
        "data-show",
        LEARNING,
        "What a model is really shown",
        "vitral data show fashion-mnist --augment strong --out sheets",
        "sheets/augmented.png",
        "Thirty training pictures as they reach the model: moved, turned, stretched, partly erased, and mixed with their labels.",
        "that stronger is better: whether a mirrored or cut garment is still one is a question of the data.",
        "",
        ("fashion-mnist",),
    ),
    Figure(
        "quantise",
        TRUST,
        "Eight bits, and how many answers stay the same",
        "vitral quantise runs/digits digits --out small --rounds 5",
        "small/report.html",
        "How often the int8 model answers as the original does, what that costs on test, and which layers hurt most.",
        "that 8 bits are faster here: over the rounds the speed was 0.89 to 1.87 times that of fp32, on cores that other work shared.",
        "digits",
        ("digits",),
        ("runs/digits",),
        view=View(width=1000, height=820),
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
        view=View("#panel-surgery .halves", hash="#view=surgery", ready="#panel-surgery .halves svg", width=1280, height=900),
    ),
)

R1 = f"vitral figures {VIT} photos/cat.jpg --preprocess squash --only patches,attention --token 100 --out r1"

REPORTS = (
    Figure(
        "r1-patches",
        "R1",
        "R1, figure 4: a photograph in its 196 patches",
        R1,
        "r1/cat-patches.png",
        "Resized straight to 224 × 224 as R1 does, then cut into 14 × 14 patches of 16 × 16 pixels.",
        "that the model sees this: each patch becomes 192 numbers before anything looks at it.",
        "vit-tiny",
        ("cat.jpg",),
        width=1000,
    ),
    Figure(
        "r1-matrix",
        "R1",
        "R1, figure 6: attention matrices",
        R1,
        "r1/cat-attention-matrix.png",
        "All 197 × 197 weights of ViT-Ti's heads 0 to 2 in the first, middle and last block, by the logarithm; every row sums to 1.",
        "much from one photograph. R1 shows head 3 of ViT-B/16, and does not say of which block.",
        "vit-tiny",
        ("cat.jpg",),
        width=1000,
    ),
    Figure(
        "r1-matrix-normalised",
        "R1",
        "R1, A_visual: each row layer-normalised",
        R1,
        "r1/cat-attention-matrix-normalised.png",
        "The same matrices, each row with mean 0 and spread 1, cut at three deviations.",
        "amounts: rows that attend evenly and rows that attend to one token look alike.",
        "vit-tiny",
        ("cat.jpg",),
        width=1000,
    ),
    Figure(
        "r1-row-100",
        "R1",
        "R1, figure 8: row 100 of the matrix as maps",
        R1,
        "r1/cat-attention-patch.png",
        "Row 100 is the patch in row 7, column 1 (white square). ViT-Ti has heads 0 to 2; of B/16 the same command shows 0 to 7.",
        "that the bright places explain the answer: this is where one patch looks, not what the class rests on.",
        "vit-tiny",
        ("cat.jpg",),
    ),
    Figure(
        "r3-filters",
        "R3",
        "R3, figure 10: the embedding's components and a CNN's first filters",
        f"vitral figures {VIT} --only filters --rival runs/digits-cnn --out r3",
        "r3/filters.png",
        "Above ViT-Ti's components: blobs, edges, gratings. Below a small CNN's 3 × 3 filters after 5 epochs of digits: light and dark.",
        "that both learnt the same: colours against grey, 16 pixels against 3, a thousand classes against ten.",
        "vit-tiny",
        ("digits",),
        ("runs/digits-cnn",),
        width=1000,
    ),
    Figure(
        "r3-shuffled",
        "R3",
        "R3, section 3: patches in another order",
        f"vitral figures {VIT} photos/cat.jpg --preprocess squash --only shuffled --out r3",
        "r3/cat-shuffled.png",
        "With positions the answer changes with the order of the patches; with the positions taken out it is the same in every order.",
        "that positions could be left out: without them the answer is the same, and it need not be the right one.",
        "vit-tiny",
        ("cat.jpg",),
        width=1000,
    ),
    Figure(
        "r4-positions-7",
        "R4",
        "R4, figure 4: positions on a grid of 7 × 7",
        "vitral figures tiny-112 --only positions --out r4",
        "r4/positions.png",
        "ViT-Ti's 14 × 14 position embeddings resized to 7 × 7: each is most like those of its own row and column.",
        "that these were learnt at 7 × 7: they are interpolated. R4 shows those of ViT-B/16.",
        "vit-tiny",
        (),
        ("tiny-112",),
        width=900,
    ),
    Figure(
        "r4-rollout",
        "R4",
        "R4, figure 5: rollout over a photograph",
        f"vitral figures {VIT} photos/cat.jpg --only rollout --out r4",
        "r4/cat-rollout.png",
        "Attention of all blocks multiplied, heads joined by mean, minimum and maximum, with all weights and with the strongest tenth.",
        "that the answer rests on what is bright: [the audit](audit.md) of this model found that rollout does not tell.",
        "vit-tiny",
        ("cat.jpg",),
    ),
)
"""Figures of the reports (docs/results/reports.md) with photographs that may be shown."""

CAT = "runs/demo/cat.jpg"
FIRST = "README"

README = (
    Figure(
        "tour-train",
        FIRST,
        "The lens while a model learns",
        "vitral train digits --snapshots 24\nvitral film runs/digits --format webp",
        "runs/digits/film/film.webp",
        "Right-hand panel of the film: what the head would answer after each block, for four digits, from step 0 to step 500.",
        "that the four digits stand for all: a film follows a few.",
        "digits",
        ("digits",),
        width=366,
        crop=(690 / 1056, 0, 1, 390 / 873),
        points=8,
        drawn_at=110,
    ),
    Figure(
        "tour-look",
        FIRST,
        "One map of one photograph",
        f"vitral look vit_tiny {CAT} --method gradient_rollout --out sheets",
        "sheets/cat.png",
        "Gradient rollout for the predicted class over the photograph, with the verdict of an audit of this model.",
        "that the model saw a nose: a map says where, not what.",
        "vit-tiny",
        ("cat.jpg",),
        ("runs/demo", "vit_tiny", "vit_tiny/audit"),
        width=900,
        crop=(0, 0.525, 0.53, 0.95),
        points=6,
    ),
    Figure(
        "tour-audit",
        FIRST,
        "Verdicts on attribution methods",
        PREPARED["vit_tiny/audit"],
        "vit_tiny/audit/figures/a-scores.png",
        "One of the audit's tests, coloured by verdict: what blurring a method's brightest patches first does to the answer.",
        "that the verdicts hold for another model: they are about one model on some pictures.",
        "vit-tiny",
        (),
        ("vit_tiny",),
        width=1000,
        crop=(0, 0.343, 0.318, 0.652),
        points=8,
    ),
    Figure(
        "tour-compare",
        FIRST,
        "Two models under one budget",
        "vitral compare digits --models vit,cnn --budget samples=10000 --batch-size 64 --lrs 3e-3 --seeds 3 --out runs/fight",
        "runs/fight/figures/accuracy.png",
        "Test accuracy with 95 % intervals over seeds and test images.",
        "that CNNs are better than ViTs: 10,000 samples of digits are little training.",
        "",
        ("digits",),
        width=900,
        points=8,
    ),
)
"""Pictures of the README, but for the two films of the explorer, which docs/make_readme_pictures.py records."""
