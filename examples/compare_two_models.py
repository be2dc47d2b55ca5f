"""A fair fight: equal budget, several seeds, intervals, the test pictures opened once per run."""

import vitral

result = vitral.study.compare("digits", ["vit-small", "hybrid"], budget="samples=512", seeds=2, lrs=[3e-3], out="runs/fight")
print(result)
