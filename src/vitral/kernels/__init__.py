"""Fused operations that pay, each with a plain twin that a test compares."""
