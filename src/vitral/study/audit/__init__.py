"""Which explanation of a model can be trusted."""
