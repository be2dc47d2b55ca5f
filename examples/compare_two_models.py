"""A fair fight: equal budget, several seeds, intervals, the test pictures opened once per run."""

from vitral.config import DataConfig
from vitral.study.cells import Budget
from vitral.study.compare import compare, plan_compare

study = plan_compare(DataConfig(name="digits"), ["vit-small", "hybrid"], Budget.parse("samples=512"), seeds=2, rates=[3e-3])
result = compare(study, "runs/fight")
print(result.table.text())
print(result.conclusion)
