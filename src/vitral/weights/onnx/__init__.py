"""ONNX: the graph, and its 8-bit version."""
