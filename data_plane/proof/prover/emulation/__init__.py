"""GPUs that are not there: the honest emulation, how long a real card would take, and every cheat we know."""
