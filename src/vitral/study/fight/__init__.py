"""Fair comparisons: contenders, one budget, seeds, statistics."""
