"""Looking inside: a tape → a heat map or numbers, one method per file, one signature."""
