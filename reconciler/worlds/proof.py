"""The world of loops that challenge GPUs."""

from collections.abc import Callable
from dataclasses import dataclass

from data_plane.proof.challenger.port import Challenger
from reconciler.worlds.access import AccessWorld


@dataclass(frozen=True, kw_only=True)
class ProofWorld(AccessWorld):
    challenger: Challenger
    chance: Callable[[], float]
    """Returns random numbers, uniform in [0, 1). Unpredictable, because they decide when a machine is challenged."""
    proof_dry_run: bool = False
    """Whether verified machines that fail their proof are only reported."""
