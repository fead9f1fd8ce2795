"""The commands, one file per noun. Each file has `add`, which declares its commands, and a function for each."""
