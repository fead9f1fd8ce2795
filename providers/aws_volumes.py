"""Volumes that machines left at AWS.

Those of a machine go with it (`DeleteOnTermination`), so none should be left. One is when somebody detached it, or
changed that, in the account. It has the launch key of its machine as a tag, and is a child once no machine has it any
more: AWS refuses to delete one before that.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from control_plane.domain.money import Nano
from providers.aws_catalogue import VOLUME_TYPE
from providers.aws_client import AwsClient, Operation, filter_of, tags
from providers.base import Child, Needed, Page, Verb
from providers.listings import LAUNCH_KEY_TAG, launch_key_among, nano_usd, whole_listing

KIND = "volume"
LEFT = [filter_of("tag-key", LAUNCH_KEY_TAG), filter_of("status", "available", "error")]
"""The filters that leave the volumes of ours that no machine has. Those that are being made are not among them."""
_PAGE_SIZE = 1_000


class Volumes:
    usd_per_gib_hour: Decimal | None = None
    """Of VOLUME_TYPE, as the price list had it last; None before it was read."""

    def __init__(self, aws: AwsClient) -> None:
        self._aws = aws

    async def children(self, region: str) -> tuple[Child, ...]:
        async def page(cursor: str | None) -> Page[Child]:
            return await self._aws.call(
                Verb.CHILDREN,
                region,
                Operation("ec2", "describe_volumes"),
                lambda answer: Page(tuple(self._children(region, answer)), answer.get("NextToken") or None),
                Filters=LEFT,
                MaxResults=_PAGE_SIZE,
                **({"NextToken": cursor} if cursor else {}),
            )

        return await whole_listing(Verb.CHILDREN, page)

    async def delete(self, region: str, volume: str) -> None:
        await self._aws.call(
            Verb.CHILDREN, region, Operation("ec2", "delete_volume"), lambda _: None, VolumeId=volume
        )

    def _children(self, region: str, answer: Mapping[str, Any]) -> Iterator[Child]:
        for volume in answer["Volumes"]:
            key = launch_key_among((tags(volume.get("Tags", ())).get(LAUNCH_KEY_TAG),))
            if key is not None:
                ref, cost = f"{region}/{volume['VolumeId']}", self._cost(volume)
                yield Child(ref, KIND, key, Needed.WHILE_IT_EXISTS, cost)

    def _cost(self, volume: Mapping[str, Any]) -> Nano | None:
        """What it costs for an hour. Volumes of other types, which images may bring, have other prices."""
        if self.usd_per_gib_hour is None or volume["VolumeType"] != VOLUME_TYPE:
            return None
        return nano_usd(self.usd_per_gib_hour * volume["Size"])
