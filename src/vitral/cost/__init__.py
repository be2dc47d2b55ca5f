"""What a model or a run costs, as formulas: FLOPs, memory, time, number formats."""
