"""Properties here are pure arithmetic: the same examples on every run, and no clock to be late for."""

from hypothesis import settings

settings.register_profile("house", deadline=None, derandomize=True, database=None, max_examples=60)
settings.load_profile("house")
