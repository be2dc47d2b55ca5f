# %% [markdown]
# # A Vision Transformer from nothing to your own photograph
#
# A *Vision Transformer* (ViT) is a model that looks at a picture and says what is in it. In this lesson
# you take one apart, put it together again, train it, let it fight, and then look with a trained one at
# a photograph of your own.
#
# You need some Python and a little PyTorch: what a tensor is, what `nn.Linear` does. Nothing here is a
# toy. Every part is imported from `src/vitral/model/`, the files that all of Vitral runs on, and the
# lesson shows their source as it is on your machine.
#
# Every step has a picture, one sentence that says *why*, and an `assert`: a line that stops the lesson
# if what was just said is not true. Change things; the asserts tell you when you broke something.
#
# This page is also a notebook: [vit_from_nothing.ipynb](vit_from_nothing.ipynb). To run it, you need
# Vitral and Jupyter (`pip install . jupyterlab` in a clone), a processor, and two to three minutes of its
# time. No graphics card, no account; only the last part, the photograph, needs a file of 23 MB from the network.

# %%
import inspect
import math
import textwrap

import numpy as np
import torch
import torch.nn.functional as F

import vitral
from vitral import draw, look

torch.manual_seed(0)
torch.set_printoptions(precision=1)
torch.set_num_threads(1)  # the matrices are small: more threads would only wait for each other


def show_source(part):
    print(textwrap.dedent(inspect.getsource(part)))


# %% [markdown]
# These are the only numbers that decide how long the lesson takes. We come to each of them.

# %% tags=["settings"]
EPOCHS = 20  # how often the model of step 9 sees all its pictures
SAMPLES = 30_000  # how many pictures each model of the fight may see
SEEDS = 3  # how often each fight is repeated
PHOTOGRAPH = None  # the path of your own photograph; None: one that comes with scikit-learn

# %% [markdown]
# ## 1. A picture is a table of numbers
#
# We begin with small pictures: 1,797 handwritten digits of 8 × 8 pixels, which come with scikit-learn.
# A pixel is one number, its brightness. Vitral divides the digits into pictures to *train* on, pictures
# for *validation* (to choose settings on) and *test* pictures, which are looked at once, at the end.

# %% Eight of each digit
data = vitral.data.open_data(vitral.DataConfig(name="digits"))
print(len(data.train), "to train on,", len(data.validation), "for validation")

some = {
    name: [data.train.picture(i) for i in data.train.indices_of_class(int(name))[:8]]
    for name in "0123456789"
}
draw.class_sheet(some, title="Eight of each digit", width=0.42)

# %% [markdown]
# One of them as the model gets it: a tensor (pictures, channels, height, width). There is one channel,
# because the digits are grey; a colour photograph has three. The numbers are shifted and scaled so that
# their mean is about 0 and their spread about 1. Why: a model learns best from numbers of that size.

# %%
digit = some["3"][0]
images = data.preprocess.batch([digit])
print(images.shape)
print(images[0, 0])

assert images.shape == (1, 1, 8, 8)
assert abs(data.preprocess.batch(data.train.picture(i) for i in range(500)).mean()) < 0.1

# %% [markdown]
# ## 2. Patches
#
# A Transformer was made for text: it reads a *sequence*, a row of words. A picture has no words, so we
# cut it into small squares, the *patches*, and read them row by row. Here is the function that does it:

# %%
from vitral.model.patches import PatchEmbedding, cut

show_source(cut)

# %% A digit cut into sixteen patches
patches = cut(images, (2, 2))  # squares of 2 × 2 pixels

assert patches.shape == (1, 16, 4)  # 16 patches of 4 numbers
assert torch.equal(
    patches[0, 0].reshape(2, 2), images[0, 0, :2, :2]
)  # the first is the upper left corner
draw.patch_figure(digit, (4, 4))

# %% [markdown]
# Four numbers say little. One matrix, the same for every patch, turns the four into as many as we like;
# we take 32. Its numbers are *learned*: training will change them until they are useful. Why the same
# matrix for all: an edge is an edge wherever it lies, and there is less to learn.

# %%
show_source(PatchEmbedding)

# %%
embedding = PatchEmbedding(channels=1, width=32, patch=(2, 2), stride=(2, 2))
vectors = embedding(images)
print(vectors.shape)

assert vectors.shape == (1, 16, 32)
# It is the same as a convolution that steps from patch to patch, and that is how it is often written.
convolved = embedding.projection(images).flatten(2).transpose(1, 2)
assert torch.allclose(vectors, convolved, atol=1e-5)

# %% [markdown]
# ## 3. Tokens
#
# A vector in the sequence is called a *token*. One more is put in front of the patches: the *class
# token*. It belongs to no patch and is the same for every picture at first. Why: at the end one vector
# must stand for the whole picture, and this one is free to collect what matters from all patches.

# %%
from vitral.model.tokens import PrependClassToken

show_source(PrependClassToken)

# %% Seventeen tokens of 32 numbers
prepend = PrependClassToken(width=32)
torch.nn.init.normal_(prepend.class_token)  # it begins at zero; like this it can be seen
tokens = prepend(vectors)

assert tokens.shape == (1, 17, 32)  # 1 + 16
other = prepend(embedding(data.preprocess.batch([some["8"][0]])))
assert torch.equal(other[0, 0], tokens[0, 0])  # another picture, the same class token
assert not torch.equal(other[0, 1:], tokens[0, 1:])  # but other patches
draw.matrix_figure(
    tokens[0].detach().numpy(),
    title="17 tokens: the class token (row 0) and 16 patches",
    rows="token",
    columns="number of the vector",
    label="value",
    signed=True,
)

# %% [markdown]
# ## 4. Positions
#
# What comes next treats the tokens as a heap, not as a row: it would give the same answer if somebody
# dealt the patches out anew. See for yourself. `deal` cuts a picture up and joins the patches in another
# order:

# %% A digit and the same patches in another order
from PIL import Image


def join(patches):
    """The opposite of cut, for patches of 2 × 2 in a picture of 8 × 8."""
    return patches.reshape(-1, 4, 4, 2, 2).permute(0, 1, 3, 2, 4).reshape(-1, 1, 8, 8)


def deal(images, order):
    return join(cut(images, (2, 2))[:, order])


order = torch.randperm(16, generator=torch.Generator().manual_seed(1))
dealt = deal(images, order)

assert torch.equal(join(cut(images, (2, 2))), images)  # joined again, nothing is lost
grey = [((one[0, 0] - one.min()) / (one.max() - one.min()) * 255).byte() for one in (images, dealt)]
draw.picture_sheet(
    [Image.fromarray(one.numpy()) for one in grey], ["a 3", "the same patches"], width=2
)

# %%
blind = vitral.create("digits", positions="none").eval()  # a whole ViT, but without positions
with torch.no_grad():
    difference = (blind(images) - blind(dealt)).abs().max()
print(f"without positions, the answers differ by {difference:.0e}")

assert difference < 1e-5

# %% [markdown]
# So a vector is added to each token that says where it lies. Those vectors may be learned like
# everything else, or fixed. Here is the fixed kind, made of waves: slow waves tell left from right, fast
# ones tell neighbours apart.

# %%
from vitral.model.positions import AddPositionalEmbeddings, sine_cosine

show_source(sine_cosine)

# %% How alike the positions are
places = sine_cosine((4, 4), 32)
unit = places / places.norm(dim=1, keepdim=True)
alike = unit @ unit.T  # 1: the same direction, 0: nothing in common

assert places.shape == (16, 32)
assert torch.allclose(alike.diagonal(), torch.ones(16))
assert alike[5, 6] > alike[5, 7] and alike[5, 9] > alike[5, 13]  # neighbours are more alike
draw.grid_of_grids(
    alike.reshape(4, 4, 4, 4).numpy(),
    title="Each position with all others",
    limits=(0.5, 1),
    signed=False,
    longest=3.6,
)

# %% [markdown]
# Each of the 16 small squares belongs to one patch and shows how much its position resembles all others.
# Why it works: patches that lie near each other get similar vectors, so "next to" is something that the
# model can see. Adding is all there is to it:

# %%
show_source(AddPositionalEmbeddings.forward)

# %%
from vitral.presets.models import model as named

SIZES = {"width": 32, "depth": 2, "heads": 4, "mlp_width": 64, "initialisation": "torch"}
config = named("digits", **SIZES)  # the small ViT that we are going to build
positions = AddPositionalEmbeddings(config)
torch.nn.init.normal_(positions.table)  # the learned kind: it begins as noise

placed = positions(tokens)
assert torch.allclose(placed, tokens + positions.table)

# %% [markdown]
# ## 5. Attention
#
# Now the tokens may look at each other. Each token makes three vectors of itself with three matrices:
# a *query* (what am I looking for?), a *key* (what do I have to offer?) and a *value* (what do I give?).
# A query is compared with every key: their product is a *score*. The *softmax* turns the scores of one
# token into shares that sum to 1. With these shares the values are mixed, and the mixture is what the
# token takes home:
#
#     shares = softmax(query · keyᵀ / √d)
#     output = shares · value
#
# Here d is the number of entries of a query. Why divide by √d: products of longer vectors are larger,
# and the softmax of large numbers puts everything on one token. We write it ourselves, with four
# *heads*: four such lookups side by side, each with its own 8 of the 32 numbers.

# %%
from vitral.model.attention import Attention

attention = Attention(config, "blocks.0.attention")


def by_hand(tokens):
    query, key, value = attention.qkv(tokens).chunk(3, dim=-1)  # each (1, 17, 32)
    query, key, value = (part.reshape(1, 17, 4, 8).transpose(1, 2) for part in (query, key, value))
    shares = (query @ key.transpose(-2, -1) / math.sqrt(8)).softmax(dim=-1)  # (1, 4, 17, 17)
    mixed = (shares @ value).transpose(1, 2).reshape(1, 17, 32)  # the heads side by side again
    return shares, attention.projection(mixed)


shares, output = by_hand(placed)

assert torch.allclose(shares.sum(dim=-1), torch.ones(1, 4, 17))  # every row sums to 1
assert torch.allclose(output, attention(placed), atol=1e-5)  # ours is theirs

# %% Who looks at whom in four untrained heads
draw.matrix_figure(
    shares[0].detach().numpy(),
    titles=[f"head {head}" for head in range(4)],
    title="Attention of an untrained block",
    prefix=1,
    shared=True,
    per_row=4,
)

# %% [markdown]
# Row 0 is the class token. Nothing has been learned yet, so these shares mean nothing; in step 9 you see
# what becomes of them. Why attention is so useful: every token can reach every other in one step, near
# or far, and *what it looks at depends on the picture*. The price: a table of 17 × 17 shares, and with
# twice as many tokens it is four times as large.
#
# Here is the real one. It is longer than ours because it serves all kinds of ViT: some normalise queries and
# keys, some turn them by their position (`rotation`) or add a `bias`, and in the last block only the tokens that
# will be read need ask (`read`). Where nobody watches (`tape is None`)
# PyTorch's fast kernel does the softmax and the mixing in one go.

# %%
from vitral.model.attention import Attention

show_source(Attention.forward)

# %% [markdown]
# ## 6. A block
#
# After the tokens have looked around, each works on its own on what it found: an *MLP*, two matrices
# with a bend between them (the *GELU*, which lets large numbers through and stops negative ones).
# Attention and MLP together are a *block*. Before each of them a *norm* brings every token to the same
# size, and what they find is *added* to the token.

# %%
from vitral.model.block import TransformerBlock

show_source(TransformerBlock.forward)

# %% What one block adds
block = TransformerBlock(config)
middle = placed + block.attention(block.norm1(placed))
after = middle + block.mlp(block.norm2(middle))

assert torch.allclose(block(placed), after, atol=1e-5)
added = {
    "tokens that come in": placed,
    "what attention adds": middle - placed,
    "what the MLP adds": after - middle,
    "tokens that go out": after,
}
sizes = [value.detach().norm(dim=-1).mean().item() for value in added.values()]
draw.bar_chart(
    list(added), sizes, label="mean length of a token", title="An untrained block adds a little"
)

# %% [markdown]
# Why adding: a block need not rebuild the picture, it only writes remarks on it. Blocks can then be
# stacked, twelve or twenty-four of them, and the first still learn, because the sum carries their
# remarks to the end.

# %% [markdown]
# ## 7. The head
#
# At the end the class token is read, and one last matrix turns its 32 numbers into ten *logits*, one for
# each digit. The softmax makes probabilities of them.

# %%
from vitral.model.head import MLPHead

show_source(MLPHead)

# %% What the untrained parts say
head = MLPHead(width=32, classes=10)
logits = head(F.layer_norm(after, (32,))[:, 0])  # a norm, then token 0
probabilities = logits.softmax(dim=-1)

loss = F.cross_entropy(
    logits, torch.tensor([3])
)  # minus the logarithm of what it gives the right class
print(f"loss {loss:.2f}; of ten classes, guessing has ln 10 = {math.log(10):.2f}")

assert probabilities.shape == (1, 10) and torch.isclose(probabilities.sum(), torch.tensor(1.0))
assert abs(loss.item() - math.log(10)) < 0.3
draw.prediction_chart(
    list("0123456789"), logits[0].tolist(), probabilities[0].tolist(), image=digit, title="A guess"
)

# %% [markdown]
# About a tenth for each: it knows nothing, and it does not pretend to. Why one number to check: a loss
# far from ln 10 before training is the first sign of a mistake in a model.

# %% [markdown]
# ## 8. All of it
#
# That was every part. `vitral.create` puts them together, and these four lines are its forward pass:

# %%
vit = vitral.create("digits", **SIZES).eval()


def forward(model, images):
    tokens = model.positions(model.tokens(model.patches(images)))
    for block in model.blocks:
        tokens = block(tokens)
    return model.head(model.norm(tokens)[:, 0])


with torch.no_grad():
    assert torch.allclose(forward(vit, images), vit(images), atol=1e-5)

# %% Where the numbers are
kinds = {
    "patches": vit.patches,
    "class token": vit.tokens,
    "positions": vit.positions,
    "attention": [block.attention for block in vit.blocks],
    "MLP": [block.mlp for block in vit.blocks],
    "norms": [part for block in vit.blocks for part in (block.norm1, block.norm2)] + [vit.norm],
    "head": vit.head,
}
counts = {
    name: sum(
        value.numel()
        for value in torch.nn.ModuleList(found if isinstance(found, list) else [found]).parameters()
    )
    for name, found in kinds.items()
}
total = sum(value.numel() for value in vit.parameters())
print(f"{total:,} numbers to learn")

assert sum(counts.values()) == total
draw.bar_chart(
    list(counts),
    list(counts.values()),
    label="numbers to learn",
    form="{:,.0f}",
    title="Where they are",
)

# %% [markdown]
# Why so many in attention and MLP: the other parts only bring the picture in and the answer out.
# [The ViT in twelve short steps](../concepts/vit.md) follows one picture through all of them, with what each costs.

# %% [markdown]
# ## 9. Training
#
# Show the model pictures, compare its answers with the truth (the loss), ask PyTorch in which direction
# each number would make the loss smaller (the *gradient*), and step a little that way. One such step:

# %%
learner = vitral.create("digits", **SIZES)
batch = data.preprocess.batch(data.train.picture(i) for i in range(128))
truth = torch.from_numpy(data.train.labels[:128])

before = F.cross_entropy(learner(batch), truth)
before.backward()  # fills .grad of every number
with torch.no_grad():
    for value in learner.parameters():
        value -= 0.05 * value.grad  # 0.05 is the learning rate: how far to step
    after_step = F.cross_entropy(learner(batch), truth)
print(f"loss {before:.3f} before, {after_step:.3f} after one step")

assert after_step < before

# %% [markdown]
# `vitral.fit` takes such steps over and over, with everything that a good training has: batches in a new
# order each time, pictures that are shifted and turned a little, a learning rate that rises and falls,
# a validation now and then, and a folder in which all of it is written down.

# %% How it learned
recipe = vitral.presets.run("digits", model=config, epochs=EPOCHS, evaluate_every=1)
run = vitral.fit(recipe, quiet=True)
print(
    f"{100 * run.test['accuracy']:.1f} % of the 360 test digits are right, after {run.test['step']} steps"
)

draw.training_curves({"": run.metrics}, title="Learning to read digits")

# %% tags=["claim"]
assert run.test["accuracy"] > 0.95

# %% [markdown]
# The same model, the same digit: what does the class token look at now? `vitral.watch` runs the model
# once and keeps what happens inside, and `look` makes maps of it.

# %% What the class token looks at
examples = [
    data.validation.picture(data.validation.indices_of_class(label)[0]) for label in (0, 3, 4, 7)
]
rows = [draw.Heatmap(np.asarray(one), "digit").image(160, colours="gray") for one in examples]
for model in (vit, run.model):
    tape = vitral.watch(model, [vitral.open_picture(one, run.model) for one in examples])
    maps = [look.attention(tape, item=item) for item in range(4)]
    rows += [heat.image(160, limits=(0, 0.25)) for heat in maps]

assert torch.allclose(tape.attention(1).sum(dim=-1), torch.ones(4, 4, 17))  # still: rows sum to 1
draw.picture_sheet(
    rows,
    columns=4,
    row_labels=["digit", "untrained", "trained"],
    width=1.1,
    title="What the class token looks at, last block",
    note="black: no attention, brightest: a quarter of it or more",
)

# %% [markdown]
# Untrained, it looks everywhere alike and at every digit in the same way. Trained, it looks elsewhere in a 0
# than in a 7. Why it looks there is another question, and where a model looks need not be what its answer rests
# on; step 12 tests that. Now, of what is it still unsure? Its *confidence* is the probability that it gives its
# own answer.

# %% The eight digits of which it is least sure
unseen = data.preprocess.batch(data.validation.picture(i) for i in range(len(data.validation)))
with torch.no_grad():
    answers = run.model.eval()(unseen).softmax(dim=-1)
confidence, said = answers.max(dim=-1)
unsure = confidence.argsort()[:8].tolist()

assert confidence[unsure[0]] == confidence.min()
draw.picture_sheet(
    [data.validation.picture(i) for i in unsure],
    [f"{data.validation.labels[i]}: says {said[i]} ({confidence[i]:.0%})" for i in unsure],
    columns=4,
    width=1.3,
    title="What it is, and what it says",
)

# %% [markdown]
# ## 10. A fair fight
#
# Before the ViT there was the *CNN* (convolutional neural network): it slides small windows of 3 × 3
# pixels over the picture. Which of the two is better? The question is easy to answer wrongly, so we make
# rules first. Both get the same pictures and the same number of them (the *budget*). The CNN is made as
# large as the ViT (`cnn@parameters`). For each, the learning rate is chosen from the same list, on the
# validation pictures. Then each is trained three times from different random beginnings (*seeds*), and
# only then are the test pictures opened.

# There are two fights, because how a step is made of the gradient is a choice too. *AdamW* is what most people
# use. *Muon* is newer; our digit reader of step 9 learned with it.

# %% Two fights
fights = {
    optimizer: vitral.study.compare(
        "digits",
        ["vit-small", "cnn@parameters"],
        budget=f"samples={SAMPLES}",
        seeds=SEEDS,
        optimizer=optimizer,
        parallel=1,
        quiet=True,
        out=f"runs/lesson-{optimizer}",
    )
    for optimizer in ("adamw", "muon")
}
for optimizer, fight in fights.items():
    print(f"{optimizer}, {SAMPLES:,} pictures, {SEEDS} seeds")
    for row in fight.rows:
        mean, low, high = (100 * value for value in (row["mean"], *row["interval"]))
        print(f"  {row['model']:16}{mean:.1f} % ({low:.1f} % to {high:.1f} %)", end="  ")
        print(f"{row['parameters']:,} parameters, {row['flops']:,} FLOPs")
    print(textwrap.fill(fight.conclusion.partition(" (Paired")[0], 80), end="\n\n")

rows = {
    f"{row['model']}, {optimizer}": row for optimizer, fight in fights.items() for row in fight.rows
}
assert all(abs(row["parameters"] / 17_866 - 1) < 0.1 for row in rows.values())  # equal size
draw.bar_chart(
    list(rows),
    [100 - 100 * row["mean"] for row in rows.values()],
    low=[100 - 100 * row["interval"][1] for row in rows.values()],
    high=[100 - 100 * row["interval"][0] for row in rows.values()],
    label="test digits that are wrong (%), with 95 % interval",
    title="Equal size, equal budget",
    form="{:.1f}",
)

# %% tags=["claim"]
(adamw,), (muon,) = (fight.values["pairs"] for fight in fights.values())
assert adamw["different"] and adamw["difference"] < 0  # the ViT is worse
assert not muon["different"]

# %% [markdown]
# With AdamW the CNN wins by four points, and that is more than chance explains. With Muon the two cannot be told
# apart, which is no proof that they are equal. So our small ViT does not beat a CNN of its size here: it needs the
# better recipe to draw level. And equal is only the number of pictures. In arithmetic (FLOPs, the number of
# multiplications and additions for one picture) the CNN is more than three times as cheap.
#
# The whiskers are 95 % *intervals*: so far may the means be off, given three seeds and 360 test pictures. They are
# the reason for three seeds. With 20,000 pictures instead of 30,000 (AdamW), the gap was even larger, 86.9 against
# 94.3 %, and yet not shown (p = 0.06): the three seeds of the ViT lay six points apart.
#
# Why is it hard for the ViT? A CNN is *built* to know that neighbouring pixels belong together. A ViT has to learn
# from examples which patches are neighbours, and 1,293 digits are few. That it knows nothing of neighbours can be
# proved. Deal out the patches of all pictures in one and the same new order, so that to our eyes the digits are
# gone. Deal out the ViT's positions in the same way, and it gives the same answers as before:

# %%
import copy

straight = copy.deepcopy(run.model).double()  # 64-bit numbers: rounding does not blur the proof
rearranged = copy.deepcopy(straight)
with torch.no_grad():
    rearranged.positions.table[:, 1:] = straight.positions.table[:, 1:][:, order]  # 0: class token
    difference = (rearranged(deal(unseen, order).double()) - straight(unseen.double())).abs().max()
print(f"the answers differ by {difference:.0e}")

assert difference < 1e-9

# %% [markdown]
# So to a ViT such pictures are exactly as easy, and as hard, to learn as the straight ones. What is built into a
# model helps when there is little to learn from, and matters less the more there is. In the paper that introduced
# the ViT it passed the CNNs only after it had learned from 14 to 300 million pictures (Dosovitskiy and others, 2021,
# arXiv 2010.11929).

# %% [markdown]
# ## 11. Your own photograph
#
# Our ViT has read digits for a few seconds. ViT-Ti is built from the very same parts, only larger: 12 blocks,
# 3 heads, 192 numbers a token, and 14 × 14 patches of 16 × 16 pixels. It was trained on some
# fourteen million photographs (ImageNet-21k) and knows a thousand things by name. We need its numbers, a file of 23 MB:
# put `vit_tiny_patch16_224.safetensors` beside this notebook, or let timm fetch it (`pip install timm`).

# %%
import os
from pathlib import Path

file = os.environ.get("VITRAL_LESSON_WEIGHTS", "vit_tiny_patch16_224.safetensors")
try:
    vit_ti = vitral.load(file if Path(file).is_file() else "timm:vit_tiny_patch16_224")
    print(
        f"{sum(value.numel() for value in vit_ti.parameters()):,} numbers, read into the parts of steps 2 to 7"
    )
    assert type(vit_ti) is type(run.model)
except vitral.VitralError:
    vit_ti = None
    print(
        "Not run: steps 11 and 12 need ViT-Ti's weights; they are not here and cannot be fetched."
    )

# %% The photograph in 196 patches
from sklearn.datasets import load_sample_image

photograph = PHOTOGRAPH or load_sample_image("china.jpg")
figure = None
if vit_ti is not None:
    picture = vitral.open_picture(photograph, vit_ti)  # resized and cut to the square that it wants
    watched = vitral.watch(vit_ti, picture)
    for name, probability in vitral.predict(vit_ti, picture)[0]:
        print(f"{100 * probability:5.1f} %  {name}")
    assert watched.grid == (14, 14) and watched.attention(0).shape == (1, 3, 197, 197)
    figure = draw.patch_figure(picture.original, watched.grid, picture.box)
figure

# %% [markdown]
# Our digit reader began with noise for positions and had no time to tidy it up. ViT-Ti had. Compare what it
# learned with the waves of step 4: nobody told it that pictures have rows and columns.

# %% The positions that ViT-Ti learned
figure = None
if vit_ti is not None:
    learned = look.position_similarity(vit_ti)
    print(learned.finding)
    figure = learned.draw()
figure

# %% [markdown]
# Where did it look? Three answers. *Attention* is the last block's shares, as in step 9. *Rollout*
# multiplies the shares of all blocks, to follow what flowed from each patch to the end. *Gradient
# rollout* counts only those shares that speak for the answer.

# %% Three maps of one photograph
from vitral.look.sheet import caption_of

figure = None
if vit_ti is not None:
    heats = [method(watched) for method in (look.attention, look.rollout, look.gradient_rollout)]
    figure = draw.picture_sheet(
        [heat.overlay() for heat in heats],
        [caption_of(watched, heat) for heat in heats],
        width=2.2,
        title="Three answers to one question",
    )
figure

# %% [markdown]
# ## 12. Can you believe the maps?
#
# They differ, so they cannot all be right, and a map always looks convincing. So we test them. An *audit*
# asks of every method: if the patches that it marks are covered, does the answer really suffer more than
# from covering others (*removal*)? Does it find a patch of which we know that it decides the class,
# because we planted it (*planted patch*)? Does the map change when the weights are shuffled, or would it
# look the same for a model that knows nothing (*permuted weights*)? Noise, an edge detector and a blob in
# the middle of the picture are tested beside them: a map that does no better explains nothing.
#
# A small audit: the left and the right half of two photographs.

# %% A small audit
from vitral.draw.audit import score_figure
from vitral.study.audit.audit import audit

figure = None
if vit_ti is not None:
    photographs = [load_sample_image(name) for name in ("china.jpg", "flower.jpg")]
    halves = [part for one in photographs for part in (one[:, :427], one[:, -427:])]
    judged = audit(
        vit_ti, halves, ["attention", "rollout", "gradient_rollout"], pictures=4, quiet=True
    )
    for row in judged.rows:
        print(f"{row.text}\n")
    tests = ("removal", "planted patch", "permuted weights")
    found = {
        test: {row.method: row.tests[test][:3] for row in judged.rows if test in row.tests}
        for test in tests
    }
    assert all(
        -1 <= low <= mean <= high <= 1
        for rows in found.values()
        for mean, low, high in rows.values()
    )
    figure = score_figure(
        {test: rows for test, rows in found.items() if rows},
        {row.method: row.verdict for row in judged.rows},
        {"removal": 0, "planted patch": 0.5, "permuted weights": 0},
        title="Four pictures: mean and 95 % interval",
    )
figure

# %% [markdown]
# Gradient rollout does best here, and even of it not everything is shown. Look at the width of the intervals: four
# pictures are few, and an honest audit of four says of many things that they are *not shown*. That is not the same
# as "wrong". Even noise seems to find the planted patch, by luck: only two of the four pictures were left for that
# test. With twelve photographs it becomes clearer: [which explanations to trust](../results/audit.md). On your own pictures it is one command,
# `vitral audit vit_tiny_patch16_224.safetensors folder:photos`.

# %% [markdown]
# ## Exercises
#
# Try each before you open its answer. All answers are run together with the lesson.
#
# **1.** How many tokens does ViT-Ti make of a picture of 224 × 224 pixels? How many with patches of 8 × 8
# instead of 16 × 16, and how many times as large does the table of attention shares become?

# %% tags=["answer"]
tokens_16 = (224 // 16) ** 2 + 1  # and the class token
tokens_8 = (224 // 8) ** 2 + 1
print(tokens_16, tokens_8, f"{tokens_8**2 / tokens_16**2:.1f} times as large")

assert named("ti/16").tokens == tokens_16 and named("ti/8").tokens == tokens_8

# %% [markdown]
# **2.** Divide by √d *after* the softmax instead of before. What do the rows sum to then? Is the
# softmax sharper or flatter than it should be?

# %% tags=["answer"]
d = 64
query, key = torch.randn(17, d), torch.randn(17, d)
right = (query @ key.T / math.sqrt(d)).softmax(dim=-1)
wrong = (query @ key.T).softmax(dim=-1) / math.sqrt(d)
print(f"rows sum to {right.sum(-1).mean():.3f} and {wrong.sum(-1).mean():.3f}")
print(
    f"the largest share of a row: {right.max(-1).values.mean():.2f} and {8 * wrong.max(-1).values.mean():.2f}"
)

assert torch.allclose(
    wrong.sum(dim=-1), torch.full((17,), 1 / 8)
)  # 1 / √64: values shrink in every block
assert 8 * wrong.max(-1).values.mean() > 2 * right.max(-1).values.mean()  # and far too sharp

# %% [markdown]
# **3.** In step 4 a whole model without positions gave the same answer for dealt patches. Show why: if the
# tokens come in another order, what comes out of attention?

# %% tags=["answer"]
mixed_up = torch.randperm(17)
assert torch.allclose(attention(placed[:, mixed_up]), attention(placed)[:, mixed_up], atol=1e-5)
# The same vectors, in the new order. The MLP and the norms treat each token alone, so the same holds
# for a whole block, and the class token, wherever it stands, ends up as before.
assert torch.allclose(block(placed[:, mixed_up]), block(placed)[:, mixed_up], atol=1e-5)

# %% [markdown]
# **4.** Count the numbers of ViT-Ti with pencil and paper: patches, class token, positions, and for each of
# the 12 blocks two norms, attention and MLP, then a norm and a head for 1,000 classes. (D = 192, the MLP
# is four times as wide; a matrix from a to b numbers has a · b + b, a norm 2 · D.)

# %% tags=["answer"]
D, M, L = 192, 768, 12
into = (16 * 16 * 3 * D + D) + D + 197 * D  # patches, class token, positions
one_block = 2 * (2 * D) + (D * 3 * D + 3 * D) + (D * D + D) + (D * M + M) + (M * D + D)
out_of = 2 * D + (D * 1000 + 1000)
print(f"{into + L * one_block + out_of:,}")

with torch.device("meta"):  # names and shapes alone, no memory
    assert (
        sum(value.numel() for value in vitral.create("ti/16").parameters())
        == into + L * one_block + out_of
    )

# %% [markdown]
# **5.** Which head of the trained digit reader matters most? Switch each of the eight off in turn and see
# how much the loss on 100 validation pictures rises. (`vitral.watch` takes `edits`: a function that
# changes what passes by, by the name it has on the tape.)

# %% tags=["answer"]
few = min(100, len(data.validation))
asked_of = data.preprocess.batch(data.validation.picture(i) for i in range(few))
right_ones = torch.from_numpy(data.validation.labels[:few])


def loss_without(block, head):
    def silence(heads, _name):  # (pictures, heads, tokens, numbers)
        heads = heads.clone()
        heads[:, head] = 0
        return heads

    tape = vitral.watch(run.model, asked_of, edits={f"blocks.{block}.attention.heads": silence})
    return F.cross_entropy(tape.logits, right_ones).item()


whole = F.cross_entropy(vitral.watch(run.model, asked_of).logits, right_ones).item()
lost = {
    f"block {block}, head {head}": loss_without(block, head) - whole
    for block in range(2)
    for head in range(4)
}
print("matters most:", max(lost, key=lost.get))

assert len(lost) == 8 and max(lost.values()) != min(lost.values())

# %% [markdown]
# ## What now?
#
# - Turn the numbers in the second cell: with `EPOCHS = 50` the digit reader gets better. Does the winner of
#   the fight change with `SAMPLES`?
# - [Train on your own pictures](../guide/train.md), [bring weights](../guide/bring.md),
#   [look inside](../guide/look.md), [compare](../guide/compare.md).
# - Hover over patches and switch heads off with the mouse: `vitral explore` and the run's folder,
#   [explore](../guide/explore.md).
# - Read the files in the order of this lesson: [the ViT in twelve short steps](../concepts/vit.md).
