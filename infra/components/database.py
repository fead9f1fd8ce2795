"""The database: PostgreSQL of RDS in private subnets, encrypted, with TLS demanded of every connection."""

import pulumi
import pulumi_aws as aws

from infra.components.common import Component, trust
from infra.config import Stack

VERSION = "17"
LOG_DAYS = 90
PARAMETERS = {
    "rds.force_ssl": "1",
    "log_min_duration_statement": "1000",
    # Without the values in it, which are customers'.
    "log_parameter_max_length": "0",
    "log_parameter_max_length_on_error": "0",
    "log_lock_waits": "1",
    "idle_in_transaction_session_timeout": "60000",
}


class Database(Component):
    """Its first user's password is made, kept and rotated by AWS in Secrets Manager, and is in no state of Pulumi.

    Backups are continuous: any second of the last `backup_days` can be restored, into a new instance beside this one.
    """

    def __init__(
        self,
        stack: Stack,
        parent: pulumi.Resource,
        *,
        subnets: list[aws.ec2.Subnet],
        security_group: pulumi.Input[str],
        key: aws.kms.Key,
        log_key: aws.kms.Key,
    ) -> None:
        super().__init__(stack, "database", parent)
        # RDS would make it, without a key of ours and for ever.
        log = aws.cloudwatch.LogGroup(
            "database",
            name=f"/aws/rds/instance/{self.name('database')}/postgresql",
            retention_in_days=LOG_DAYS,
            kms_key_id=log_key.arn,
            opts=self.below(),
        )
        place = aws.rds.SubnetGroup(
            "database",
            name=self.name("database"),
            subnet_ids=[subnet.id for subnet in subnets],
            opts=self.below(),
        )
        parameters = aws.rds.ParameterGroup(
            "database",
            name=self.name(f"postgres{VERSION}"),
            family=f"postgres{VERSION}",
            parameters=[
                aws.rds.ParameterGroupParameterArgs(name=name, value=value)
                for name, value in PARAMETERS.items()
            ],
            opts=self.below(),
        )
        size = stack.database
        self.instance = aws.rds.Instance(
            "database",
            identifier=self.name("database"),
            engine="postgres",
            engine_version=VERSION,
            auto_minor_version_upgrade=True,
            instance_class=size.instance_class,
            db_name="splitplane",
            username="splitplane_root",
            manage_master_user_password=True,
            master_user_secret_kms_key_id=key.arn,
            allocated_storage=size.storage_gib,
            max_allocated_storage=size.storage_max_gib,
            storage_type="gp3",
            storage_encrypted=True,
            kms_key_id=key.arn,
            multi_az=size.multi_az,
            db_subnet_group_name=place.name,
            vpc_security_group_ids=[security_group],
            publicly_accessible=False,
            parameter_group_name=parameters.name,
            ca_cert_identifier="rds-ca-rsa2048-g1",
            backup_retention_period=size.backup_days,
            backup_window="02:00-03:00",
            maintenance_window="sun:03:30-sun:04:30",
            copy_tags_to_snapshot=True,
            delete_automated_backups=False,
            deletion_protection=stack.protect_data,
            skip_final_snapshot=not stack.protect_data,
            final_snapshot_identifier=self.name("database-final") if stack.protect_data else None,
            performance_insights_enabled=True,
            performance_insights_kms_key_id=key.arn,
            monitoring_interval=60,
            monitoring_role_arn=self._monitoring_role(),
            enabled_cloudwatch_logs_exports=["postgresql"],
            opts=self.guarded(depends_on=[log]),
        )
        self.register_outputs({"address": self.instance.address})

    def _monitoring_role(self) -> pulumi.Output[str]:
        role = aws.iam.Role(
            "monitoring",
            name=self.name("database-monitoring"),
            assume_role_policy=trust(
                "monitoring.rds.amazonaws.com", StringEquals={"aws:SourceAccount": self.stack.account}
            ),
            opts=self.below(),
        )
        aws.iam.RolePolicyAttachment(
            "monitoring",
            role=role.name,
            policy_arn="arn:aws:iam::aws:policy/service-role/AmazonRDSEnhancedMonitoringRole",
            opts=self.below(),
        )
        return pulumi.Output.from_input(role.arn)
