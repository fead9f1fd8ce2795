"""What loops need that challenge GPUs."""

from collections.abc import Callable
from dataclasses import dataclass

from data_plane.proof.challenger.port import Challenger
from reconciler.worlds.access import AccessWorld


@dataclass(frozen=True, kw_only=True)
class ProofWorld(AccessWorld):
    challenger: Challenger
    chance: Callable[[], float]
    """Uniform in [0, 1), and unpredictable: it decides when an idle machine is challenged."""
    proof_dry_run: bool = False
    """Whether machines that fail their proof while a customer has them are only reported."""
