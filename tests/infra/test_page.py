"""docs/generated/deployment.md is drawn from the graphs of the stacks, and its sums are sums."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra import costs
from infra.config import read
from tests.support import golden
from tests.support.cloud.graph import STACKS, Graph, Resource, graphs, settings_of

pytestmark = pytest.mark.xdist_group("infra")
PAGE = Path("docs/generated/deployment.md")


def _ways(graph: Graph) -> list[tuple[str, str, str]]:
    """From, to and ports of every rule that lets something in."""
    groups = {one.id: one.name for one in graph.of("SecurityGroup")}
    found = []
    for rule in graph.of("SecurityGroupIngressRule"):
        source = groups.get(rule.inputs.get("referencedSecurityGroupId", ""), "internet")
        found.append((source, groups[rule.inputs["securityGroupId"]], _ports(rule)))
    outward = [rule for rule in graph.of("SecurityGroupEgressRule") if rule.inputs.get("cidrIpv4")]
    found += [(groups[rule.inputs["securityGroupId"]], "internet", _ports(rule)) for rule in outward]
    return sorted(found)


def _ports(rule: Resource) -> str:
    first, last = int(rule.inputs["fromPort"]), int(rule.inputs["toPort"])
    return f"{rule.inputs['ipProtocol']} {first}" + (f"-{last}" if last != first else "")


def _page() -> Iterator[str]:
    yield "<!-- Drawn from the code by tests/infra/test_page.py: run `make golden`. -->\n\n# The deployment on AWS\n"
    yield "How it is used: [deploying.md](../deploying.md).\n\n## Who may open connections to whom\n"
    yield "Everything else is closed. `prod`, without networks of `kubectl_from`:\n\n```mermaid\nflowchart LR"
    drawn: dict[tuple[str, str], list[str]] = {}
    for source, target, ports in _ways(graphs()["prod"]):
        if target != "endpoints":
            drawn.setdefault((source, target), []).append(ports)
    yield from (f"  {source} -- {', '.join(ports)} --> {target}" for (source, target), ports in drawn.items())
    yield "```\n\nEvery task also reaches AWS itself: private endpoints (tcp 443), and S3 by its gateway.\n"
    yield (
        "## What is made\n\n| | "
        + " | ".join(STACKS)
        + " |\n| --- | "
        + " | ".join("---" for _ in STACKS)
        + " |"
    )
    counts = [
        Counter(one.type for one in graphs()[name].resources if one.type.startswith("aws:"))
        for name in STACKS
    ]
    for kind in sorted({kind for count in counts for kind in count}):
        yield f"| `{kind}` | " + " | ".join(str(count[kind]) for count in counts) + " |"
    yield "| all | " + " | ".join(str(sum(count.values())) for count in counts) + " |\n"
    yield "## What it costs a month\n"
    yield "With every service at its minimum, before anybody uses it, at AWS's list prices of us-east-1 (`infra/costs.py`)."
    yield "Use costs more: requests, bytes through the NAT gateways (0.045 USD a GB) and to the internet, logs, growth.\n"
    for name in STACKS:
        lines = costs.estimate(read(name, settings_of(name)))
        yield f"### {name}\n\n| what | arithmetic | USD |\n| --- | --- | ---: |"
        yield from (f"| {line.what} | {line.arithmetic} | {line.usd_per_month:.0f} |" for line in lines)
        yield f"| all | | {sum(line.usd_per_month for line in lines):.0f} |\n"


def test_the_page_of_the_deployment_is_drawn_from_its_graph() -> None:
    golden.check(PAGE, "\n".join(_page()))


def test_the_figures_that_costs_are_computed_with_are_those_of_the_graph() -> None:
    for name in STACKS:
        graph = graphs()[name]
        assert len(graph.of("Key")) == costs.KEYS
        assert len(graph.of("MetricAlarm")) == costs.alarms(read(name, settings_of(name)))
        interfaces = [one for one in graph.of("VpcEndpoint") if one.inputs["vpcEndpointType"] == "Interface"]
        assert len(interfaces) == costs.ENDPOINTS
        assert len(graph.one("WebAcl", "public").inputs["rules"]) == costs.RULES
        assert {one.inputs["rootBlockDevice"]["volumeSize"] for one in graph.of("ec2.Instance")} == {
            costs.HOST_DISK_GIB
        }


def test_a_budget_covers_what_a_stack_costs_before_anybody_uses_it() -> None:
    for name in STACKS:
        stack = read(name, settings_of(name))
        assert sum(line.usd_per_month for line in costs.estimate(stack)) < stack.monthly_budget_usd
