"""The one public door of the control plane: TLS, a web application firewall, and requests passed on to one service."""

import pulumi
import pulumi_aws as aws
from pulumi_aws import wafv2 as waf

from infra.components.common import Component
from infra.components.network import Network
from infra.config import Stack
from infra.services import Service

REQUESTS_PER_ADDRESS = 60_000
"""In five minutes, as docs/nginx.conf has it: 200 a second. The API's own bounds are finer."""
MANAGED_RULES = {
    "AWSManagedRulesAmazonIpReputationList": (),
    "AWSManagedRulesKnownBadInputsRuleSet": (),
    # The rules on bodies are for forms of web pages: they would block reasons and labels in JSON that contain a URL or
    # "../", and bodies of up to 64 KiB. The API reads each body by its schema, and refuses larger ones itself.
    # Clients without a user agent are clients.
    "AWSManagedRulesCommonRuleSet": (
        "SizeRestrictions_BODY",
        "GenericRFI_BODY",
        "GenericLFI_BODY",
        "EC2MetaDataSSRF_BODY",
        "CrossSiteScripting_BODY",
        "NoUserAgent_HEADER",
    ),
}
"""Each with those of its rules that only count."""


class LoadBalancer(Component):
    """It writes no access log, because a line of one would contain queries; the API writes a line for each request.

    Its targets are asked for /readyz, so that an API whose database is away gets no requests while another one has it.
    """

    def __init__(
        self,
        stack: Stack,
        parent: pulumi.Resource,
        network: Network,
        *,
        group: aws.ec2.SecurityGroup,
        service: Service,
    ) -> None:
        super().__init__(stack, "load-balancer", parent)
        self.balancer = aws.lb.LoadBalancer(
            "public",
            name=self.name("public"),
            load_balancer_type="application",
            internal=False,
            subnets=[subnet.id for subnet in network.public],
            security_groups=[group.id],
            drop_invalid_header_fields=True,
            desync_mitigation_mode="strictest",
            xff_header_processing_mode="append",
            idle_timeout=60,
            enable_deletion_protection=stack.protect_data,
            opts=self.below(depends_on=[network.internet]),
        )
        self.targets = aws.lb.TargetGroup(
            service.name,
            name=self.name(service.name),
            vpc_id=network.vpc.id,
            port=service.port,
            protocol="HTTP",
            target_type="ip",
            deregistration_delay=30,
            health_check=aws.lb.TargetGroupHealthCheckArgs(
                path="/readyz",
                matcher="200",
                interval=10,
                timeout=5,
                healthy_threshold=2,
                unhealthy_threshold=2,
            ),
            opts=self.below(),
        )
        self.listener = aws.lb.Listener(
            "https",
            load_balancer_arn=self.balancer.arn,
            port=443,
            protocol="HTTPS",
            ssl_policy="ELBSecurityPolicy-TLS13-1-2-2021-06",
            certificate_arn=self._certificate(),
            default_actions=[
                aws.lb.ListenerDefaultActionArgs(type="forward", target_group_arn=self.targets.arn)
            ],
            opts=self.below(),
        )
        self._firewall()
        aws.route53.Record(
            "api",
            zone_id=stack.hosted_zone,
            name=stack.domain,
            type="A",
            aliases=[
                aws.route53.RecordAliasArgs(
                    name=self.balancer.dns_name, zone_id=self.balancer.zone_id, evaluate_target_health=True
                )
            ],
            opts=self.below(),
        )
        self.register_outputs({"dns_name": self.balancer.dns_name})

    def _certificate(self) -> pulumi.Output[str]:
        certificate = aws.acm.Certificate(
            "api", domain_name=self.stack.domain, validation_method="DNS", opts=self.below()
        )
        option = certificate.domain_validation_options[0]
        proof = aws.route53.Record(
            "certificate",
            zone_id=self.stack.hosted_zone,
            name=option.resource_record_name,
            type=option.resource_record_type,
            records=[option.resource_record_value],
            ttl=300,
            opts=self.below(),
        )
        valid = aws.acm.CertificateValidation(
            "api", certificate_arn=certificate.arn, validation_record_fqdns=[proof.fqdn], opts=self.below()
        )
        return pulumi.Output.from_input(valid.certificate_arn)

    def _firewall(self) -> None:
        managed = [
            waf.WebAclRuleArgs(
                name=name,
                priority=priority,
                override_action=waf.WebAclRuleOverrideActionArgs(none=waf.WebAclRuleOverrideActionNoneArgs()),
                statement=waf.WebAclRuleStatementArgs(
                    managed_rule_group_statement=waf.WebAclRuleStatementManagedRuleGroupStatementArgs(
                        vendor_name="AWS",
                        name=name,
                        rule_action_overrides=[_counted(rule) for rule in counted],
                    )
                ),
                visibility_config=waf.WebAclRuleVisibilityConfigArgs(**_visible(name)),
            )
            for priority, (name, counted) in enumerate(MANAGED_RULES.items(), 1)
        ]
        rate = waf.WebAclRuleArgs(
            name="RequestsPerAddress",
            priority=0,
            action=waf.WebAclRuleActionArgs(block=waf.WebAclRuleActionBlockArgs()),
            statement=waf.WebAclRuleStatementArgs(
                rate_based_statement=waf.WebAclRuleStatementRateBasedStatementArgs(
                    limit=REQUESTS_PER_ADDRESS, aggregate_key_type="IP"
                )
            ),
            visibility_config=waf.WebAclRuleVisibilityConfigArgs(**_visible("RequestsPerAddress")),
        )
        firewall = waf.WebAcl(
            "public",
            name=self.name("public"),
            scope="REGIONAL",
            default_action=waf.WebAclDefaultActionArgs(allow=waf.WebAclDefaultActionAllowArgs()),
            rules=[rate, *managed],
            visibility_config=waf.WebAclVisibilityConfigArgs(**_visible("public")),
            opts=self.below(),
        )
        waf.WebAclAssociation(
            "public", resource_arn=self.balancer.arn, web_acl_arn=firewall.arn, opts=self.below()
        )


def _counted(rule: str) -> waf.WebAclRuleStatementManagedRuleGroupStatementRuleActionOverrideArgs:
    """A rule of AWS's that only counts."""
    action = waf.WebAclRuleStatementManagedRuleGroupStatementRuleActionOverrideActionToUseArgs(
        count=waf.WebAclRuleStatementManagedRuleGroupStatementRuleActionOverrideActionToUseCountArgs()
    )
    return waf.WebAclRuleStatementManagedRuleGroupStatementRuleActionOverrideArgs(
        name=rule, action_to_use=action
    )


def _visible(name: str) -> dict[str, object]:
    """Counts alone: samples would show requests with their headers, and so keys."""
    return {"metric_name": name, "cloudwatch_metrics_enabled": True, "sampled_requests_enabled": False}
