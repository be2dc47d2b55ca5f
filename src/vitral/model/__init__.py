"""The Vision Transformer, file by file in the paper's order:

patches.py → tokens.py → positions.py → attention.py → mlp.py → block.py → head.py → vit.py.
tape.py records what happens inside; summary.py prints it, with what vitral.cost counts.
"""
