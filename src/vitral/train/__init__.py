"""Training: one loop for everything."""
