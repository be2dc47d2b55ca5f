"""A run folder or a study as one HTML page that opens anywhere, without a network."""
