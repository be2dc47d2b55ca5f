"""Image sources: folders, tables, shards, hubs, named sets: each becomes one `Source`."""
