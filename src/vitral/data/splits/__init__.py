"""Splits: what is trained on, validated on, tested on, and what keeps them apart."""
