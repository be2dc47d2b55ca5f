"""The measure that every import is judged by."""

import math

import torch

from vitral.weights.proof import Difference, Proof, difference


def test_a_difference_is_the_largest_in_either_direction_as_a_share_of_the_source():
    theirs = torch.tensor([[1.0, -4.0], [2.0, 0.0]])
    for sign in (1, -1):
        assert difference(theirs + sign * torch.tensor([[0.0, 0.0], [0.5, 0.0]]), theirs) == 0.125
    assert difference(torch.full((2,), 0.5), torch.zeros(2)) == 0.5, "a source of zeros: the difference itself"
    assert difference(torch.zeros(1, 2), torch.zeros(2)) == math.inf, "another shape is another thing, even where it would broadcast"
    assert math.isnan(difference(torch.full((2,), math.nan), torch.ones(2)))


def test_the_first_layer_over_the_tolerance_is_named_and_no_number_is_the_worst():
    rows = tuple(Difference(f"blocks.{number}", value) for number, value in enumerate((1e-7, 1e-5, math.nan, 1.0)))
    proof = Proof(rows, 1e-5, "here")
    assert proof.first_diverging == "blocks.2" and not proof.holds and math.isnan(proof.worst)
    assert Proof(rows[:2], 1e-5, "here").holds
