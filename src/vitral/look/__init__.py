"""Looking inside: a tape → a heat map or numbers, one method per file, one signature.

    heat = method(tape, item=0, target=None, start="class", …)

Methods carry the names of their files, so the functions are bound here after their files are loaded: `vitral.look.rollout`
is the function, `from vitral.look.rollout import RunningRollout` reaches into its file.
"""

from __future__ import annotations

from vitral.look.attention import attention, attention_matrix
from vitral.look.contributions import contributions
from vitral.look.distance import distance, entropy, watch_heads
from vitral.look.filters import filters
from vitral.look.gradcam import gradcam
from vitral.look.health import health, norms
from vitral.look.integrated_gradients import integrated_gradients
from vitral.look.legrad import legrad
from vitral.look.lens import fit_lens, lens
from vitral.look.method import MEASURES, METHODS
from vitral.look.occlusion import occlusion
from vitral.look.predict import predict
from vitral.look.relevance import gradient_rollout, relevance
from vitral.look.rise import rise
from vitral.look.rollout import rollout, watch_rollout
from vitral.look.similarity import position_similarity, similarity, token_colours
from vitral.look.switch_off import ablate
from vitral.look.watch import watch

__all__ = [
    "MEASURES",
    "METHODS",
    "ablate",
    "attention",
    "attention_matrix",
    "contributions",
    "distance",
    "entropy",
    "filters",
    "fit_lens",
    "gradcam",
    "gradient_rollout",
    "health",
    "integrated_gradients",
    "legrad",
    "lens",
    "norms",
    "occlusion",
    "position_similarity",
    "predict",
    "relevance",
    "rise",
    "rollout",
    "similarity",
    "token_colours",
    "watch",
    "watch_heads",
    "watch_rollout",
]

globals().update(METHODS | MEASURES)  # what the table has and the lines above do not: a method that is new
