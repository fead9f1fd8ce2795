"""The commands, one file per noun. Each has `add(to)`, which declares them, and a function for each."""
