"""The explorer's HTTP server."""
