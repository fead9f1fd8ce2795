"""Whether this host can run real machines, and the one command that makes it so."""

from providers.emulators.nspawn import missing_requirements


def missing() -> list[str]:
    """What is missing, one sentence each; the last one is the command. Empty when nothing is."""
    return missing_requirements()
