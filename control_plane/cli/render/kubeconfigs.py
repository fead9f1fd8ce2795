"""Kubeconfigs on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.names import Names
from control_plane.cli.render.layout import facts, table
from control_plane.cli.words import both, coarse, short_id, spaced
from control_plane.wire.kubeconfigs import KubeconfigView


def kubeconfig_page(
    kubeconfig: KubeconfigView, context: str, file: str, example: str, now: datetime
) -> RenderableType:
    """One kubeconfig, its context in the file that it was written to, and what to do with it."""
    return Group(
        Text(file),
        Text(),
        facts(
            ("Kubeconfig", kubeconfig.id),
            ("Cluster", kubeconfig.cluster),
            ("Project", kubeconfig.project),
            ("Context", context),
            ("Namespace", kubeconfig.namespace),
            ("Role", kubeconfig.role),
            ("Valid until", both(kubeconfig.expires_at, now)),
        ),
        Text(),
        Text(f"Try: {example}"),
    )


def kubeconfig_table(kubeconfigs: Sequence[KubeconfigView], names: Names, now: datetime) -> RenderableType:
    if not kubeconfigs:
        return Text("No kubeconfigs. To get one: splitplane kubeconfig create --cluster CLUSTER")
    ids = [kubeconfig.id for kubeconfig in kubeconfigs]
    rows = [
        (
            short_id(kubeconfig.id, ids),
            kubeconfig.name,
            f"{kubeconfig.cluster}/{kubeconfig.project}",
            kubeconfig.role,
            names.subject(kubeconfig.subject) or kubeconfig.subject,
            _state(kubeconfig, now),
        )
        for kubeconfig in kubeconfigs
    ]
    columns = ("KUBECONFIG", "NAME", "CONTEXT", "ROLE", "WHO", "STATE")
    return table(columns, rows, whole=("KUBECONFIG", "CONTEXT", "ROLE"))


def _state(kubeconfig: KubeconfigView, now: datetime) -> str:
    if kubeconfig.state == "issued" and kubeconfig.expires_at is not None:
        return f"{coarse(kubeconfig.expires_at - now)} left"
    why = kubeconfig.revoked_why or kubeconfig.refused_why
    return kubeconfig.state if why is None else f"{kubeconfig.state}: {spaced(why)}"
