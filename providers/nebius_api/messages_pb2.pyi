import datetime

from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class InstanceRecoveryPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECOVER: _ClassVar[InstanceRecoveryPolicy]
    FAIL: _ClassVar[InstanceRecoveryPolicy]

class RuleProtocol(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROTOCOL_UNSPECIFIED: _ClassVar[RuleProtocol]
    ANY: _ClassVar[RuleProtocol]
    TCP: _ClassVar[RuleProtocol]
    UDP: _ClassVar[RuleProtocol]
    ICMP: _ClassVar[RuleProtocol]

class RuleAccessAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACCESS_UNSPECIFIED: _ClassVar[RuleAccessAction]
    ALLOW: _ClassVar[RuleAccessAction]
    DENY: _ClassVar[RuleAccessAction]
RECOVER: InstanceRecoveryPolicy
FAIL: InstanceRecoveryPolicy
PROTOCOL_UNSPECIFIED: RuleProtocol
ANY: RuleProtocol
TCP: RuleProtocol
UDP: RuleProtocol
ICMP: RuleProtocol
ACCESS_UNSPECIFIED: RuleAccessAction
ALLOW: RuleAccessAction
DENY: RuleAccessAction

class Status(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    details: _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., details: _Optional[_Iterable[_Union[_any_pb2.Any, _Mapping]]] = ...) -> None: ...

class ResourceMetadata(_message.Message):
    __slots__ = ("id", "parent_id", "name", "created_at", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    id: str
    parent_id: str
    name: str
    created_at: _timestamp_pb2.Timestamp
    labels: _containers.ScalarMap[str, str]
    def __init__(self, id: _Optional[str] = ..., parent_id: _Optional[str] = ..., name: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Operation(_message.Message):
    __slots__ = ("id", "created_at", "finished_at", "resource_id", "status")
    ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    id: str
    created_at: _timestamp_pb2.Timestamp
    finished_at: _timestamp_pb2.Timestamp
    resource_id: str
    status: Status
    def __init__(self, id: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., finished_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., resource_id: _Optional[str] = ..., status: _Optional[_Union[Status, _Mapping]] = ...) -> None: ...

class ListOperationsByParentRequest(_message.Message):
    __slots__ = ("parent_id", "page_size", "page_token")
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    parent_id: str
    page_size: int
    page_token: str
    def __init__(self, parent_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListOperationsResponse(_message.Message):
    __slots__ = ("operations", "next_page_token")
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    operations: _containers.RepeatedCompositeFieldContainer[Operation]
    next_page_token: str
    def __init__(self, operations: _Optional[_Iterable[_Union[Operation, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ServiceError(_message.Message):
    __slots__ = ("service", "code", "bad_request", "bad_resource_state", "resource_not_found", "resource_already_exists", "out_of_range", "permission_denied", "resource_conflict", "operation_aborted", "operation_conflict", "too_many_requests", "quota_failure", "not_enough_resources", "internal_error")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    BAD_REQUEST_FIELD_NUMBER: _ClassVar[int]
    BAD_RESOURCE_STATE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NOT_FOUND_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ALREADY_EXISTS_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_RANGE_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_DENIED_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_CONFLICT_FIELD_NUMBER: _ClassVar[int]
    OPERATION_ABORTED_FIELD_NUMBER: _ClassVar[int]
    OPERATION_CONFLICT_FIELD_NUMBER: _ClassVar[int]
    TOO_MANY_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    QUOTA_FAILURE_FIELD_NUMBER: _ClassVar[int]
    NOT_ENOUGH_RESOURCES_FIELD_NUMBER: _ClassVar[int]
    INTERNAL_ERROR_FIELD_NUMBER: _ClassVar[int]
    service: str
    code: str
    bad_request: BadRequest
    bad_resource_state: BadResourceState
    resource_not_found: ResourceNotFound
    resource_already_exists: ResourceAlreadyExists
    out_of_range: OutOfRange
    permission_denied: PermissionDenied
    resource_conflict: ResourceConflict
    operation_aborted: OperationAborted
    operation_conflict: OperationConflict
    too_many_requests: TooManyRequests
    quota_failure: QuotaFailure
    not_enough_resources: NotEnoughResources
    internal_error: InternalError
    def __init__(self, service: _Optional[str] = ..., code: _Optional[str] = ..., bad_request: _Optional[_Union[BadRequest, _Mapping]] = ..., bad_resource_state: _Optional[_Union[BadResourceState, _Mapping]] = ..., resource_not_found: _Optional[_Union[ResourceNotFound, _Mapping]] = ..., resource_already_exists: _Optional[_Union[ResourceAlreadyExists, _Mapping]] = ..., out_of_range: _Optional[_Union[OutOfRange, _Mapping]] = ..., permission_denied: _Optional[_Union[PermissionDenied, _Mapping]] = ..., resource_conflict: _Optional[_Union[ResourceConflict, _Mapping]] = ..., operation_aborted: _Optional[_Union[OperationAborted, _Mapping]] = ..., operation_conflict: _Optional[_Union[OperationConflict, _Mapping]] = ..., too_many_requests: _Optional[_Union[TooManyRequests, _Mapping]] = ..., quota_failure: _Optional[_Union[QuotaFailure, _Mapping]] = ..., not_enough_resources: _Optional[_Union[NotEnoughResources, _Mapping]] = ..., internal_error: _Optional[_Union[InternalError, _Mapping]] = ...) -> None: ...

class BadRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BadResourceState(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResourceNotFound(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResourceAlreadyExists(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OutOfRange(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PermissionDenied(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResourceConflict(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OperationAborted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OperationConflict(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TooManyRequests(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class QuotaFailure(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NotEnoughResources(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InternalError(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExchangeTokenRequest(_message.Message):
    __slots__ = ("grant_type", "requested_token_type", "subject_token", "subject_token_type")
    GRANT_TYPE_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_TOKEN_TYPE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_TOKEN_TYPE_FIELD_NUMBER: _ClassVar[int]
    grant_type: str
    requested_token_type: str
    subject_token: str
    subject_token_type: str
    def __init__(self, grant_type: _Optional[str] = ..., requested_token_type: _Optional[str] = ..., subject_token: _Optional[str] = ..., subject_token_type: _Optional[str] = ...) -> None: ...

class CreateTokenResponse(_message.Message):
    __slots__ = ("access_token", "issued_token_type", "token_type", "expires_in")
    ACCESS_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ISSUED_TOKEN_TYPE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_TYPE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_FIELD_NUMBER: _ClassVar[int]
    access_token: str
    issued_token_type: str
    token_type: str
    expires_in: int
    def __init__(self, access_token: _Optional[str] = ..., issued_token_type: _Optional[str] = ..., token_type: _Optional[str] = ..., expires_in: _Optional[int] = ...) -> None: ...

class GetProjectRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class Project(_message.Message):
    __slots__ = ("metadata", "spec")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    metadata: ResourceMetadata
    spec: ProjectSpec
    def __init__(self, metadata: _Optional[_Union[ResourceMetadata, _Mapping]] = ..., spec: _Optional[_Union[ProjectSpec, _Mapping]] = ...) -> None: ...

class ProjectSpec(_message.Message):
    __slots__ = ("region",)
    REGION_FIELD_NUMBER: _ClassVar[int]
    region: str
    def __init__(self, region: _Optional[str] = ...) -> None: ...

class ListPlatformsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "parent_id")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    parent_id: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., parent_id: _Optional[str] = ...) -> None: ...

class ListPlatformsResponse(_message.Message):
    __slots__ = ("items", "next_page_token")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Platform]
    next_page_token: str
    def __init__(self, items: _Optional[_Iterable[_Union[Platform, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Platform(_message.Message):
    __slots__ = ("metadata", "spec")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    metadata: ResourceMetadata
    spec: PlatformSpec
    def __init__(self, metadata: _Optional[_Union[ResourceMetadata, _Mapping]] = ..., spec: _Optional[_Union[PlatformSpec, _Mapping]] = ...) -> None: ...

class PlatformSpec(_message.Message):
    __slots__ = ("presets",)
    PRESETS_FIELD_NUMBER: _ClassVar[int]
    presets: _containers.RepeatedCompositeFieldContainer[Preset]
    def __init__(self, presets: _Optional[_Iterable[_Union[Preset, _Mapping]]] = ...) -> None: ...

class Preset(_message.Message):
    __slots__ = ("name", "resources")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    name: str
    resources: PresetResources
    def __init__(self, name: _Optional[str] = ..., resources: _Optional[_Union[PresetResources, _Mapping]] = ...) -> None: ...

class PresetResources(_message.Message):
    __slots__ = ("vcpu_count", "memory_gibibytes", "gpu_count")
    VCPU_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_GIBIBYTES_FIELD_NUMBER: _ClassVar[int]
    GPU_COUNT_FIELD_NUMBER: _ClassVar[int]
    vcpu_count: int
    memory_gibibytes: int
    gpu_count: int
    def __init__(self, vcpu_count: _Optional[int] = ..., memory_gibibytes: _Optional[int] = ..., gpu_count: _Optional[int] = ...) -> None: ...

class CreateInstanceRequest(_message.Message):
    __slots__ = ("metadata", "spec")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    metadata: ResourceMetadata
    spec: InstanceSpec
    def __init__(self, metadata: _Optional[_Union[ResourceMetadata, _Mapping]] = ..., spec: _Optional[_Union[InstanceSpec, _Mapping]] = ...) -> None: ...

class DeleteInstanceRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class StartInstanceRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class StopInstanceRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ListInstancesRequest(_message.Message):
    __slots__ = ("parent_id", "page_size", "page_token")
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    parent_id: str
    page_size: int
    page_token: str
    def __init__(self, parent_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListInstancesResponse(_message.Message):
    __slots__ = ("items", "next_page_token")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Instance]
    next_page_token: str
    def __init__(self, items: _Optional[_Iterable[_Union[Instance, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Instance(_message.Message):
    __slots__ = ("metadata", "spec", "status")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    metadata: ResourceMetadata
    spec: InstanceSpec
    status: InstanceStatus
    def __init__(self, metadata: _Optional[_Union[ResourceMetadata, _Mapping]] = ..., spec: _Optional[_Union[InstanceSpec, _Mapping]] = ..., status: _Optional[_Union[InstanceStatus, _Mapping]] = ...) -> None: ...

class InstanceSpec(_message.Message):
    __slots__ = ("resources", "network_interfaces", "boot_disk", "cloud_init_user_data", "recovery_policy", "reservation_policy")
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    NETWORK_INTERFACES_FIELD_NUMBER: _ClassVar[int]
    BOOT_DISK_FIELD_NUMBER: _ClassVar[int]
    CLOUD_INIT_USER_DATA_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_POLICY_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_POLICY_FIELD_NUMBER: _ClassVar[int]
    resources: ResourcesSpec
    network_interfaces: _containers.RepeatedCompositeFieldContainer[NetworkInterfaceSpec]
    boot_disk: AttachedDiskSpec
    cloud_init_user_data: str
    recovery_policy: InstanceRecoveryPolicy
    reservation_policy: ReservationPolicy
    def __init__(self, resources: _Optional[_Union[ResourcesSpec, _Mapping]] = ..., network_interfaces: _Optional[_Iterable[_Union[NetworkInterfaceSpec, _Mapping]]] = ..., boot_disk: _Optional[_Union[AttachedDiskSpec, _Mapping]] = ..., cloud_init_user_data: _Optional[str] = ..., recovery_policy: _Optional[_Union[InstanceRecoveryPolicy, str]] = ..., reservation_policy: _Optional[_Union[ReservationPolicy, _Mapping]] = ...) -> None: ...

class ReservationPolicy(_message.Message):
    __slots__ = ("policy",)
    class Policy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        AUTO: _ClassVar[ReservationPolicy.Policy]
        FORBID: _ClassVar[ReservationPolicy.Policy]
        STRICT: _ClassVar[ReservationPolicy.Policy]
    AUTO: ReservationPolicy.Policy
    FORBID: ReservationPolicy.Policy
    STRICT: ReservationPolicy.Policy
    POLICY_FIELD_NUMBER: _ClassVar[int]
    policy: ReservationPolicy.Policy
    def __init__(self, policy: _Optional[_Union[ReservationPolicy.Policy, str]] = ...) -> None: ...

class ResourcesSpec(_message.Message):
    __slots__ = ("platform", "preset")
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    PRESET_FIELD_NUMBER: _ClassVar[int]
    platform: str
    preset: str
    def __init__(self, platform: _Optional[str] = ..., preset: _Optional[str] = ...) -> None: ...

class AttachedDiskSpec(_message.Message):
    __slots__ = ("attach_mode", "managed_disk")
    class AttachMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[AttachedDiskSpec.AttachMode]
        READ_ONLY: _ClassVar[AttachedDiskSpec.AttachMode]
        READ_WRITE: _ClassVar[AttachedDiskSpec.AttachMode]
    UNSPECIFIED: AttachedDiskSpec.AttachMode
    READ_ONLY: AttachedDiskSpec.AttachMode
    READ_WRITE: AttachedDiskSpec.AttachMode
    ATTACH_MODE_FIELD_NUMBER: _ClassVar[int]
    MANAGED_DISK_FIELD_NUMBER: _ClassVar[int]
    attach_mode: AttachedDiskSpec.AttachMode
    managed_disk: ManagedDisk
    def __init__(self, attach_mode: _Optional[_Union[AttachedDiskSpec.AttachMode, str]] = ..., managed_disk: _Optional[_Union[ManagedDisk, _Mapping]] = ...) -> None: ...

class ManagedDisk(_message.Message):
    __slots__ = ("name", "labels", "spec")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    name: str
    labels: _containers.ScalarMap[str, str]
    spec: DiskSpec
    def __init__(self, name: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., spec: _Optional[_Union[DiskSpec, _Mapping]] = ...) -> None: ...

class CreateDiskRequest(_message.Message):
    __slots__ = ("metadata", "spec")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    metadata: ResourceMetadata
    spec: DiskSpec
    def __init__(self, metadata: _Optional[_Union[ResourceMetadata, _Mapping]] = ..., spec: _Optional[_Union[DiskSpec, _Mapping]] = ...) -> None: ...

class DiskSpec(_message.Message):
    __slots__ = ("size_gibibytes", "type", "source_image_family")
    class DiskType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[DiskSpec.DiskType]
        NETWORK_SSD: _ClassVar[DiskSpec.DiskType]
    UNSPECIFIED: DiskSpec.DiskType
    NETWORK_SSD: DiskSpec.DiskType
    SIZE_GIBIBYTES_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_IMAGE_FAMILY_FIELD_NUMBER: _ClassVar[int]
    size_gibibytes: int
    type: DiskSpec.DiskType
    source_image_family: SourceImageFamily
    def __init__(self, size_gibibytes: _Optional[int] = ..., type: _Optional[_Union[DiskSpec.DiskType, str]] = ..., source_image_family: _Optional[_Union[SourceImageFamily, _Mapping]] = ...) -> None: ...

class SourceImageFamily(_message.Message):
    __slots__ = ("image_family",)
    IMAGE_FAMILY_FIELD_NUMBER: _ClassVar[int]
    image_family: str
    def __init__(self, image_family: _Optional[str] = ...) -> None: ...

class NetworkInterfaceSpec(_message.Message):
    __slots__ = ("subnet_id", "name", "ip_address", "public_ip_address", "security_groups")
    SUBNET_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    IP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_IP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SECURITY_GROUPS_FIELD_NUMBER: _ClassVar[int]
    subnet_id: str
    name: str
    ip_address: IPAddress
    public_ip_address: PublicIPAddress
    security_groups: _containers.RepeatedCompositeFieldContainer[InterfaceSecurityGroup]
    def __init__(self, subnet_id: _Optional[str] = ..., name: _Optional[str] = ..., ip_address: _Optional[_Union[IPAddress, _Mapping]] = ..., public_ip_address: _Optional[_Union[PublicIPAddress, _Mapping]] = ..., security_groups: _Optional[_Iterable[_Union[InterfaceSecurityGroup, _Mapping]]] = ...) -> None: ...

class IPAddress(_message.Message):
    __slots__ = ("allocation_id",)
    ALLOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    allocation_id: str
    def __init__(self, allocation_id: _Optional[str] = ...) -> None: ...

class PublicIPAddress(_message.Message):
    __slots__ = ("static",)
    STATIC_FIELD_NUMBER: _ClassVar[int]
    static: bool
    def __init__(self, static: _Optional[bool] = ...) -> None: ...

class InterfaceSecurityGroup(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class InstanceStatus(_message.Message):
    __slots__ = ("state", "network_interfaces", "reconciling", "maintenance_event_id")
    class InstanceState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[InstanceStatus.InstanceState]
        CREATING: _ClassVar[InstanceStatus.InstanceState]
        UPDATING: _ClassVar[InstanceStatus.InstanceState]
        STARTING: _ClassVar[InstanceStatus.InstanceState]
        RUNNING: _ClassVar[InstanceStatus.InstanceState]
        STOPPING: _ClassVar[InstanceStatus.InstanceState]
        STOPPED: _ClassVar[InstanceStatus.InstanceState]
        DELETING: _ClassVar[InstanceStatus.InstanceState]
        ERROR: _ClassVar[InstanceStatus.InstanceState]
    UNSPECIFIED: InstanceStatus.InstanceState
    CREATING: InstanceStatus.InstanceState
    UPDATING: InstanceStatus.InstanceState
    STARTING: InstanceStatus.InstanceState
    RUNNING: InstanceStatus.InstanceState
    STOPPING: InstanceStatus.InstanceState
    STOPPED: InstanceStatus.InstanceState
    DELETING: InstanceStatus.InstanceState
    ERROR: InstanceStatus.InstanceState
    STATE_FIELD_NUMBER: _ClassVar[int]
    NETWORK_INTERFACES_FIELD_NUMBER: _ClassVar[int]
    RECONCILING_FIELD_NUMBER: _ClassVar[int]
    MAINTENANCE_EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    state: InstanceStatus.InstanceState
    network_interfaces: _containers.RepeatedCompositeFieldContainer[NetworkInterfaceStatus]
    reconciling: bool
    maintenance_event_id: str
    def __init__(self, state: _Optional[_Union[InstanceStatus.InstanceState, str]] = ..., network_interfaces: _Optional[_Iterable[_Union[NetworkInterfaceStatus, _Mapping]]] = ..., reconciling: _Optional[bool] = ..., maintenance_event_id: _Optional[str] = ...) -> None: ...

class MaintenanceEvent(_message.Message):
    __slots__ = ("id", "status")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    id: str
    status: MaintenanceEventStatus
    def __init__(self, id: _Optional[str] = ..., status: _Optional[_Union[MaintenanceEventStatus, _Mapping]] = ...) -> None: ...

class MaintenanceEventStatus(_message.Message):
    __slots__ = ("finished_at", "sla_deadline_ts")
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    SLA_DEADLINE_TS_FIELD_NUMBER: _ClassVar[int]
    finished_at: _timestamp_pb2.Timestamp
    sla_deadline_ts: _timestamp_pb2.Timestamp
    def __init__(self, finished_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., sla_deadline_ts: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListMaintenanceEventsRequest(_message.Message):
    __slots__ = ("parent_id", "page_size", "page_token")
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    parent_id: str
    page_size: int
    page_token: str
    def __init__(self, parent_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListMaintenanceEventsResponse(_message.Message):
    __slots__ = ("items", "next_page_token")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[MaintenanceEvent]
    next_page_token: str
    def __init__(self, items: _Optional[_Iterable[_Union[MaintenanceEvent, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class NetworkInterfaceStatus(_message.Message):
    __slots__ = ("index", "ip_address", "public_ip_address")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    IP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_IP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    index: int
    ip_address: IPAddressStatus
    public_ip_address: PublicIPAddressStatus
    def __init__(self, index: _Optional[int] = ..., ip_address: _Optional[_Union[IPAddressStatus, _Mapping]] = ..., public_ip_address: _Optional[_Union[PublicIPAddressStatus, _Mapping]] = ...) -> None: ...

class IPAddressStatus(_message.Message):
    __slots__ = ("address",)
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    address: str
    def __init__(self, address: _Optional[str] = ...) -> None: ...

class PublicIPAddressStatus(_message.Message):
    __slots__ = ("address",)
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    address: str
    def __init__(self, address: _Optional[str] = ...) -> None: ...

class ListSubnetsRequest(_message.Message):
    __slots__ = ("parent_id", "page_size", "page_token")
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    parent_id: str
    page_size: int
    page_token: str
    def __init__(self, parent_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListSubnetsResponse(_message.Message):
    __slots__ = ("items", "next_page_token")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Subnet]
    next_page_token: str
    def __init__(self, items: _Optional[_Iterable[_Union[Subnet, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Subnet(_message.Message):
    __slots__ = ("metadata", "spec")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    metadata: ResourceMetadata
    spec: SubnetSpec
    def __init__(self, metadata: _Optional[_Union[ResourceMetadata, _Mapping]] = ..., spec: _Optional[_Union[SubnetSpec, _Mapping]] = ...) -> None: ...

class SubnetSpec(_message.Message):
    __slots__ = ("network_id",)
    NETWORK_ID_FIELD_NUMBER: _ClassVar[int]
    network_id: str
    def __init__(self, network_id: _Optional[str] = ...) -> None: ...

class GetSecurityGroupByNameRequest(_message.Message):
    __slots__ = ("parent_id", "name")
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    parent_id: str
    name: str
    def __init__(self, parent_id: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class CreateSecurityGroupRequest(_message.Message):
    __slots__ = ("metadata", "spec")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    metadata: ResourceMetadata
    spec: SecurityGroupSpec
    def __init__(self, metadata: _Optional[_Union[ResourceMetadata, _Mapping]] = ..., spec: _Optional[_Union[SecurityGroupSpec, _Mapping]] = ...) -> None: ...

class SecurityGroup(_message.Message):
    __slots__ = ("metadata", "spec")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    metadata: ResourceMetadata
    spec: SecurityGroupSpec
    def __init__(self, metadata: _Optional[_Union[ResourceMetadata, _Mapping]] = ..., spec: _Optional[_Union[SecurityGroupSpec, _Mapping]] = ...) -> None: ...

class SecurityGroupSpec(_message.Message):
    __slots__ = ("network_id",)
    NETWORK_ID_FIELD_NUMBER: _ClassVar[int]
    network_id: str
    def __init__(self, network_id: _Optional[str] = ...) -> None: ...

class ListSecurityRulesRequest(_message.Message):
    __slots__ = ("parent_id", "page_size", "page_token")
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    parent_id: str
    page_size: int
    page_token: str
    def __init__(self, parent_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListSecurityRulesResponse(_message.Message):
    __slots__ = ("items", "next_page_token")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[SecurityRule]
    next_page_token: str
    def __init__(self, items: _Optional[_Iterable[_Union[SecurityRule, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CreateSecurityRuleRequest(_message.Message):
    __slots__ = ("metadata", "spec")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    metadata: ResourceMetadata
    spec: SecurityRuleSpec
    def __init__(self, metadata: _Optional[_Union[ResourceMetadata, _Mapping]] = ..., spec: _Optional[_Union[SecurityRuleSpec, _Mapping]] = ...) -> None: ...

class SecurityRule(_message.Message):
    __slots__ = ("metadata", "spec")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    metadata: ResourceMetadata
    spec: SecurityRuleSpec
    def __init__(self, metadata: _Optional[_Union[ResourceMetadata, _Mapping]] = ..., spec: _Optional[_Union[SecurityRuleSpec, _Mapping]] = ...) -> None: ...

class SecurityRuleSpec(_message.Message):
    __slots__ = ("access", "protocol", "ingress", "egress")
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    INGRESS_FIELD_NUMBER: _ClassVar[int]
    EGRESS_FIELD_NUMBER: _ClassVar[int]
    access: RuleAccessAction
    protocol: RuleProtocol
    ingress: RuleIngress
    egress: RuleEgress
    def __init__(self, access: _Optional[_Union[RuleAccessAction, str]] = ..., protocol: _Optional[_Union[RuleProtocol, str]] = ..., ingress: _Optional[_Union[RuleIngress, _Mapping]] = ..., egress: _Optional[_Union[RuleEgress, _Mapping]] = ...) -> None: ...

class RuleIngress(_message.Message):
    __slots__ = ("destination_ports",)
    DESTINATION_PORTS_FIELD_NUMBER: _ClassVar[int]
    destination_ports: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, destination_ports: _Optional[_Iterable[int]] = ...) -> None: ...

class RuleEgress(_message.Message):
    __slots__ = ("destination_ports",)
    DESTINATION_PORTS_FIELD_NUMBER: _ClassVar[int]
    destination_ports: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, destination_ports: _Optional[_Iterable[int]] = ...) -> None: ...

class EstimateBatchRequest(_message.Message):
    __slots__ = ("resource_specs", "currency", "filter_aggregation_unit")
    RESOURCE_SPECS_FIELD_NUMBER: _ClassVar[int]
    CURRENCY_FIELD_NUMBER: _ClassVar[int]
    FILTER_AGGREGATION_UNIT_FIELD_NUMBER: _ClassVar[int]
    resource_specs: _containers.RepeatedCompositeFieldContainer[ResourceSpec]
    currency: str
    filter_aggregation_unit: FilterAggregationUnit
    def __init__(self, resource_specs: _Optional[_Iterable[_Union[ResourceSpec, _Mapping]]] = ..., currency: _Optional[str] = ..., filter_aggregation_unit: _Optional[_Union[FilterAggregationUnit, _Mapping]] = ...) -> None: ...

class ResourceSpec(_message.Message):
    __slots__ = ("spec",)
    SPEC_FIELD_NUMBER: _ClassVar[int]
    spec: _any_pb2.Any
    def __init__(self, spec: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...

class FilterAggregationUnit(_message.Message):
    __slots__ = ("filter_aggregation_unit_values",)
    class FilterAggregationUnitValue(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        FILTER_AGGREGATION_UNIT_UNSPECIFIED: _ClassVar[FilterAggregationUnit.FilterAggregationUnitValue]
        FILTER_AGGREGATION_UNIT_MINUTE: _ClassVar[FilterAggregationUnit.FilterAggregationUnitValue]
        FILTER_AGGREGATION_UNIT_HOUR: _ClassVar[FilterAggregationUnit.FilterAggregationUnitValue]
    FILTER_AGGREGATION_UNIT_UNSPECIFIED: FilterAggregationUnit.FilterAggregationUnitValue
    FILTER_AGGREGATION_UNIT_MINUTE: FilterAggregationUnit.FilterAggregationUnitValue
    FILTER_AGGREGATION_UNIT_HOUR: FilterAggregationUnit.FilterAggregationUnitValue
    FILTER_AGGREGATION_UNIT_VALUES_FIELD_NUMBER: _ClassVar[int]
    filter_aggregation_unit_values: _containers.RepeatedScalarFieldContainer[FilterAggregationUnit.FilterAggregationUnitValue]
    def __init__(self, filter_aggregation_unit_values: _Optional[_Iterable[_Union[FilterAggregationUnit.FilterAggregationUnitValue, str]]] = ...) -> None: ...

class EstimateBatchResponse(_message.Message):
    __slots__ = ("resource_costs", "currency")
    RESOURCE_COSTS_FIELD_NUMBER: _ClassVar[int]
    CURRENCY_FIELD_NUMBER: _ClassVar[int]
    resource_costs: _containers.RepeatedCompositeFieldContainer[ResourceCost]
    currency: str
    def __init__(self, resource_costs: _Optional[_Iterable[_Union[ResourceCost, _Mapping]]] = ..., currency: _Optional[str] = ...) -> None: ...

class ResourceCost(_message.Message):
    __slots__ = ("metadata", "aggregation_unit", "general")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    AGGREGATION_UNIT_FIELD_NUMBER: _ClassVar[int]
    GENERAL_FIELD_NUMBER: _ClassVar[int]
    metadata: ResourceMetadata
    aggregation_unit: AggregationUnit
    general: GeneralResourceCost
    def __init__(self, metadata: _Optional[_Union[ResourceMetadata, _Mapping]] = ..., aggregation_unit: _Optional[_Union[AggregationUnit, _Mapping]] = ..., general: _Optional[_Union[GeneralResourceCost, _Mapping]] = ...) -> None: ...

class AggregationUnit(_message.Message):
    __slots__ = ("unit", "unit_type")
    class UnitType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNIT_TYPE_UNSPECIFIED: _ClassVar[AggregationUnit.UnitType]
        UNIT_TYPE_TIME_BASED: _ClassVar[AggregationUnit.UnitType]
        UNIT_TYPE_USAGE_BASED: _ClassVar[AggregationUnit.UnitType]
    UNIT_TYPE_UNSPECIFIED: AggregationUnit.UnitType
    UNIT_TYPE_TIME_BASED: AggregationUnit.UnitType
    UNIT_TYPE_USAGE_BASED: AggregationUnit.UnitType
    UNIT_FIELD_NUMBER: _ClassVar[int]
    UNIT_TYPE_FIELD_NUMBER: _ClassVar[int]
    unit: str
    unit_type: AggregationUnit.UnitType
    def __init__(self, unit: _Optional[str] = ..., unit_type: _Optional[_Union[AggregationUnit.UnitType, str]] = ...) -> None: ...

class GeneralResourceCost(_message.Message):
    __slots__ = ("total",)
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    total: CostBreakdown
    def __init__(self, total: _Optional[_Union[CostBreakdown, _Mapping]] = ...) -> None: ...

class CostBreakdown(_message.Message):
    __slots__ = ("cost",)
    COST_FIELD_NUMBER: _ClassVar[int]
    cost: str
    def __init__(self, cost: _Optional[str] = ...) -> None: ...

class ListResourceAdviceRequest(_message.Message):
    __slots__ = ("parent_id", "page_size", "page_token")
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    parent_id: str
    page_size: int
    page_token: str
    def __init__(self, parent_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListResourceAdviceResponse(_message.Message):
    __slots__ = ("items", "next_page_token")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[ResourceAdvice]
    next_page_token: str
    def __init__(self, items: _Optional[_Iterable[_Union[ResourceAdvice, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ResourceAdvice(_message.Message):
    __slots__ = ("spec", "status")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    spec: ResourceAdviceSpec
    status: ResourceAdviceStatus
    def __init__(self, spec: _Optional[_Union[ResourceAdviceSpec, _Mapping]] = ..., status: _Optional[_Union[ResourceAdviceStatus, _Mapping]] = ...) -> None: ...

class ResourceAdviceSpec(_message.Message):
    __slots__ = ("region", "compute_instance")
    REGION_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    region: str
    compute_instance: ComputeInstanceDetails
    def __init__(self, region: _Optional[str] = ..., compute_instance: _Optional[_Union[ComputeInstanceDetails, _Mapping]] = ...) -> None: ...

class ComputeInstanceDetails(_message.Message):
    __slots__ = ("platform", "preset")
    class Preset(_message.Message):
        __slots__ = ("name",)
        NAME_FIELD_NUMBER: _ClassVar[int]
        name: str
        def __init__(self, name: _Optional[str] = ...) -> None: ...
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    PRESET_FIELD_NUMBER: _ClassVar[int]
    platform: str
    preset: ComputeInstanceDetails.Preset
    def __init__(self, platform: _Optional[str] = ..., preset: _Optional[_Union[ComputeInstanceDetails.Preset, _Mapping]] = ...) -> None: ...

class ResourceAdviceStatus(_message.Message):
    __slots__ = ("on_demand",)
    class Availability(_message.Message):
        __slots__ = ("data_state", "available", "availability_level")
        class DataState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            __slots__ = ()
            DATA_STATE_UNSPECIFIED: _ClassVar[ResourceAdviceStatus.Availability.DataState]
            DATA_STATE_FRESH: _ClassVar[ResourceAdviceStatus.Availability.DataState]
            DATA_STATE_STALE: _ClassVar[ResourceAdviceStatus.Availability.DataState]
            DATA_STATE_UNKNOWN: _ClassVar[ResourceAdviceStatus.Availability.DataState]
        DATA_STATE_UNSPECIFIED: ResourceAdviceStatus.Availability.DataState
        DATA_STATE_FRESH: ResourceAdviceStatus.Availability.DataState
        DATA_STATE_STALE: ResourceAdviceStatus.Availability.DataState
        DATA_STATE_UNKNOWN: ResourceAdviceStatus.Availability.DataState
        class AvailabilityLevel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            __slots__ = ()
            AVAILABILITY_LEVEL_UNSPECIFIED: _ClassVar[ResourceAdviceStatus.Availability.AvailabilityLevel]
            AVAILABILITY_LEVEL_HIGH: _ClassVar[ResourceAdviceStatus.Availability.AvailabilityLevel]
            AVAILABILITY_LEVEL_MEDIUM: _ClassVar[ResourceAdviceStatus.Availability.AvailabilityLevel]
            AVAILABILITY_LEVEL_LOW: _ClassVar[ResourceAdviceStatus.Availability.AvailabilityLevel]
            AVAILABILITY_LEVEL_LIMIT_REACHED: _ClassVar[ResourceAdviceStatus.Availability.AvailabilityLevel]
            AVAILABILITY_LEVEL_UNKNOWN: _ClassVar[ResourceAdviceStatus.Availability.AvailabilityLevel]
        AVAILABILITY_LEVEL_UNSPECIFIED: ResourceAdviceStatus.Availability.AvailabilityLevel
        AVAILABILITY_LEVEL_HIGH: ResourceAdviceStatus.Availability.AvailabilityLevel
        AVAILABILITY_LEVEL_MEDIUM: ResourceAdviceStatus.Availability.AvailabilityLevel
        AVAILABILITY_LEVEL_LOW: ResourceAdviceStatus.Availability.AvailabilityLevel
        AVAILABILITY_LEVEL_LIMIT_REACHED: ResourceAdviceStatus.Availability.AvailabilityLevel
        AVAILABILITY_LEVEL_UNKNOWN: ResourceAdviceStatus.Availability.AvailabilityLevel
        DATA_STATE_FIELD_NUMBER: _ClassVar[int]
        AVAILABLE_FIELD_NUMBER: _ClassVar[int]
        AVAILABILITY_LEVEL_FIELD_NUMBER: _ClassVar[int]
        data_state: ResourceAdviceStatus.Availability.DataState
        available: int
        availability_level: ResourceAdviceStatus.Availability.AvailabilityLevel
        def __init__(self, data_state: _Optional[_Union[ResourceAdviceStatus.Availability.DataState, str]] = ..., available: _Optional[int] = ..., availability_level: _Optional[_Union[ResourceAdviceStatus.Availability.AvailabilityLevel, str]] = ...) -> None: ...
    ON_DEMAND_FIELD_NUMBER: _ClassVar[int]
    on_demand: ResourceAdviceStatus.Availability
    def __init__(self, on_demand: _Optional[_Union[ResourceAdviceStatus.Availability, _Mapping]] = ...) -> None: ...
