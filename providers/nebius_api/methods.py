"""The methods of Nebius's API that we call: where each service lives, and what it answers."""

from providers.nebius_api import messages_pb2 as pb
from providers.rpc import Method

EXCHANGE = Method("tokens.iam", "/nebius.iam.v1.TokenExchangeService/Exchange", pb.CreateTokenResponse)
GET_PROJECT = Method("cpl.iam", "/nebius.iam.v2.ProjectService/Get", pb.Project)
LIST_PLATFORMS = Method("compute", "/nebius.compute.v1.PlatformService/List", pb.ListPlatformsResponse)
LIST_ADVICE = Method(
    "capacity-advisor.billing-cpl",
    "/nebius.capacity.v1.ResourceAdviceService/List",
    pb.ListResourceAdviceResponse,
)
ESTIMATE = Method(
    "api.calculator.billing-data-plane",
    "/nebius.billing.v1.CalculatorService/EstimateBatch",
    pb.EstimateBatchResponse,
)
LIST_INSTANCES = Method("compute", "/nebius.compute.v1.InstanceService/List", pb.ListInstancesResponse)
LIST_OPERATIONS = Method(
    "compute", "/nebius.compute.v1.InstanceService/ListOperationsByParent", pb.ListOperationsResponse
)
CREATE_INSTANCE = Method("compute", "/nebius.compute.v1.InstanceService/Create", pb.Operation)
DELETE_INSTANCE = Method("compute", "/nebius.compute.v1.InstanceService/Delete", pb.Operation)
START_INSTANCE = Method("compute", "/nebius.compute.v1.InstanceService/Start", pb.Operation)
STOP_INSTANCE = Method("compute", "/nebius.compute.v1.InstanceService/Stop", pb.Operation)
LIST_MAINTENANCE = Method(
    "compute", "/nebius.compute.v1.MaintenanceService/ListActive", pb.ListMaintenanceEventsResponse
)
LIST_SUBNETS = Method("vpc", "/nebius.vpc.v1.SubnetService/List", pb.ListSubnetsResponse)
GET_GROUP = Method("vpc", "/nebius.vpc.v1.SecurityGroupService/GetByName", pb.SecurityGroup)
CREATE_GROUP = Method("vpc", "/nebius.vpc.v1.SecurityGroupService/Create", pb.Operation)
LIST_RULES = Method("vpc", "/nebius.vpc.v1.SecurityRuleService/List", pb.ListSecurityRulesResponse)
CREATE_RULE = Method("vpc", "/nebius.vpc.v1.SecurityRuleService/Create", pb.Operation)
