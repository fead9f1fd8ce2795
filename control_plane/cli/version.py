"""The version of the command line. `importlib.metadata` would know it as well, and takes 50 ms to say so."""

VERSION = "0.1.0"
