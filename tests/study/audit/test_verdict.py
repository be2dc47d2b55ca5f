from __future__ import annotations

from vitral.study.audit.verdict import AVOID, CARE, USE, verdict_of

GOOD = {
    "removal": (0.4, 0.3, 0.5, 8),
    "removal: mean": (0.4, 0.3, 0.5, 8),
    "removal: blur": (0.4, 0.3, 0.5, 8),
    "planted patch": (0.9, 0.8, 1.0, 4),
    "permuted weights": (0.1, -0.2, 0.3, 4),
    "classes": (0.6, 0.4, 0.8, 2),
    "small changes": (0.9, 0.8, 1.0, 8),
}
BEATEN = {"random": (0.4, 0.3, 0.5), "edges": (0.2, 0.1, 0.3), "centre": (0.2, 0.1, 0.3)}


def test_what_passes_everything_may_be_used() -> None:
    row = verdict_of("relevance", GOOD, BEATEN)
    assert row.verdict == USE and "more faithful than noise (0.40)" in row.reason and row.to_dict()["tests"]["removal"]["n"] == 8


def test_each_fault_alone_is_enough() -> None:
    for change, beaten, words in (
        ({"permuted weights": (0.86, 0.8, 0.9, 4)}, BEATEN, "does not depend on the weights here"),
        ({"removal": (0.02, -0.1, 0.1, 8)}, BEATEN, "not shown to be more faithful than noise"),
        ({"planted patch": (0.5, 0.3, 0.7, 4)}, BEATEN, "does not find a patch"),
        (
            {"planted patch": (0.83, 0.35, 1.0, 4)},
            BEATEN,
            "is not shown to find a patch that decides the class (0.83, interval 0.35 to 1.00",
        ),
        ({}, {**BEATEN, "centre": (-0.3, -0.4, -0.2)}, "less faithful than a blob in the middle"),
    ):
        row = verdict_of("map", {**GOOD, **change}, beaten)
        assert row.verdict == AVOID and words in row.reason, words


def test_what_a_reader_must_know() -> None:
    for change, beaten, words in (
        ({"removal: blur": (0.1, -0.1, 0.3, 8)}, BEATEN, "not with: blur"),
        ({"classes": (0.0, 0.0, 0.0, 2)}, BEATEN, "same map for every class"),
        ({"four in one": (0.24, 0.2, 0.3, 4)}, BEATEN, "of four pictures it does not find"),
        ({"four in one": (0.34, 0.1, 0.58, 4)}, BEATEN, "of four pictures it is not shown to find"),
        ({"four in one": (0.252, 0.251, 0.253, 12)}, BEATEN, "of four pictures it does not find"),  # beyond chance for certain, by nothing
        ({"small changes": (0.2, 0.1, 0.3, 8)}, BEATEN, "small changes"),
        ({"permuted weights": (0.6, 0.4, 0.8, 4)}, BEATEN, "hardly depends on the weights"),
        ({"salience order": (-0.4, -0.6, -0.2, 8)}, BEATEN, "opposite"),
        ({}, {**BEATEN, "edges": (-0.05, -0.2, 0.1)}, "not shown to be more faithful than an edge detector"),
        ({}, {**BEATEN, "centre": (0.1, -0.1, 0.3)}, "not shown to be more faithful than a blob in the middle"),
    ):
        row = verdict_of("map", {**GOOD, **change}, beaten)
        assert row.verdict == CARE and words in row.reason and "; but more faithful" in row.reason, words


def test_references_are_no_methods() -> None:
    assert verdict_of("random", GOOD, {}, reference=True).verdict == "reference"
