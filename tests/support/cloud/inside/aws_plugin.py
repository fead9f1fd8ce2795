"""Stands in for Pulumi's AWS provider under the real engine: takes every order, and gives back what it was told.

The engine starts it as `pulumi-resource-aws` and speaks its own protocol with it. It knows which changes AWS makes by
replacing a resource (REPLACED_BY), so that plans show them; it cannot know what AWS computes or refuses.
"""

import json
import signal
import sys
from concurrent import futures
from importlib import metadata
from typing import Any

import grpc
from google.protobuf import struct_pb2
from google.protobuf.empty_pb2 import Empty
from pulumi.runtime import rpc
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from tests.support.cloud.answers import PASSWORD, answer

REPLACED_BY = {
    "aws:rds/instance:Instance": {"engine", "dbName", "username", "storageEncrypted", "kmsKeyId", "dbSubnetGroupName"},
    "aws:s3/bucket:Bucket": {"bucket", "objectLockEnabled"},
    "aws:kms/key:Key": {"keyUsage", "customerMasterKeySpec", "multiRegion"},
    "aws:secretsmanager/secret:Secret": {"name"},
    "aws:ecr/repository:Repository": {"name", "encryptionConfigurations"},
    "aws:ec2/eip:Eip": {"domain", "networkBorderGroup"},
    "aws:ec2/instance:Instance": {"ami", "availabilityZone", "subnetId", "primaryNetworkInterface"},
    "aws:ec2/networkInterface:NetworkInterface": {"subnetId"},
    "aws:ec2/vpc:Vpc": {"cidrBlock"},
    "aws:ec2/subnet:Subnet": {"cidrBlock", "availabilityZone", "vpcId"},
    "aws:ec2/securityGroup:SecurityGroup": {"name", "description", "vpcId"},
    "aws:ecs/taskDefinition:TaskDefinition": {"containerDefinitions", "cpu", "memory", "family", "volumes"},
    "aws:ecs/service:Service": {"cluster", "launchType", "name"},
    "aws:iam/role:Role": {"name"},
    "aws:lb/loadBalancer:LoadBalancer": {"name", "internal", "loadBalancerType"},
    "aws:lb/targetGroup:TargetGroup": {"name", "port", "protocol", "targetType", "vpcId"},
    "aws:rds/subnetGroup:SubnetGroup": {"name"},
    "aws:rds/parameterGroup:ParameterGroup": {"name", "family"},
}  # fmt: skip
"""Inputs that "force a new resource": registry.terraform.io/providers/hashicorp/aws, version 6, read in November 2026."""


class Plugin(provider_pb2_grpc.ResourceProviderServicer):
    account = ""

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        return provider_pb2.ProviderHandshakeResponse(accept_resources=True, accept_outputs=True)

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        return plugin_pb2.PluginInfo(version=metadata.version("pulumi-aws"))

    def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)

    def Configure(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        (Plugin.account,) = json.loads(_values(request.args)["allowedAccountIds"])
        return provider_pb2.ConfigureResponse(
            acceptSecrets=False, supportsPreview=True, acceptResources=False
        )

    def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        return provider_pb2.CheckResponse(inputs=request.news)

    def Diff(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        before, after = request.old_inputs.fields, request.news.fields
        changed = [
            name
            for name in sorted({*before, *after} - set(request.ignoreChanges))
            if before.get(name) != after.get(name)
        ]
        kinds = provider_pb2.DiffResponse
        return kinds(
            changes=kinds.DIFF_SOME if changed else kinds.DIFF_NONE,
            diffs=changed,
            replaces=[name for name in changed if name in REPLACED_BY.get(_kind(request.urn), ())],
        )

    def Create(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        if request.preview:  # Nobody knows yet what AWS will add.
            return provider_pb2.CreateResponse(id="", properties=request.properties)
        kind, name = _kind(request.urn), request.urn.split("::")[-1]
        made, state = answer(kind, name, _values(request.properties), self.account)
        if kind == "aws:rds/instance:Instance":
            state["password"] = PASSWORD
        return provider_pb2.CreateResponse(id=made, properties=_struct(state))

    def Update(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        state = struct_pb2.Struct()  # Value by value, because a plan has some that nobody knows yet.
        for properties in (request.olds, request.news):
            for name, value in properties.fields.items():
                state.fields[name].CopyFrom(value)
        return provider_pb2.UpdateResponse(properties=state)

    def Read(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        return provider_pb2.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)

    def Delete(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        return Empty()

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        return Empty()


def _kind(urn: str) -> str:
    """The type in a URN: `urn:pulumi:STACK::PROJECT::PARENT$TYPE::NAME`."""
    return urn.split("::")[2].rpartition("$")[2]


def _values(properties: struct_pb2.Struct) -> dict[str, Any]:
    return dict(rpc.deserialize_properties(properties))


def _struct(values: dict[str, Any]) -> struct_pb2.Struct:
    made = struct_pb2.Struct()
    made.update({name: value for name, value in values.items() if value is not None})
    return made


def main() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Plugin(), server)
    sys.stdout.write(f"{server.add_insecure_port('127.0.0.1:0')}\n")  # This is how the engine finds it.
    sys.stdout.flush()
    server.start()
    signal.signal(signal.SIGTERM, lambda *_: server.stop(grace=None))
    server.wait_for_termination()


if __name__ == "__main__":
    main()
