"""A tenant that tries to reach another one, in many ways, each with what refuses it.

`ways/` has a file for each means of attack. `play.py` plays them all: against the app in
`tests/integration/api/test_hostile_tenant.py`, and with `__main__.py` against an installation that runs.
"""
