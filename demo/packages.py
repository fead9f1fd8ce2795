"""What this host lacks to run real machines, and the command to install it."""

from providers.emulators.nspawn import missing_requirements


def missing() -> list[str]:
    """What is missing, one sentence each, and at the end the command. Empty if nothing is missing."""
    return missing_requirements()
