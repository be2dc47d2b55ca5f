"""Studies as data: a plan makes cells, each cell becomes a run folder, run folders become a table with mean, interval and n."""
