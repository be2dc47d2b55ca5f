"""Arrays → pictures. Nothing here knows what a model is; matplotlib is used through its objects, never through pyplot."""
