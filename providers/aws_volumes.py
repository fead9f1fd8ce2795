"""Volumes that machines left at AWS.

Those of a machine go with it (`DeleteOnTermination`), so none should be left. One is when somebody detached it, or
changed that, in the account. It has the launch key of its machine as a tag, and is a child once no machine has it any
more: AWS refuses to delete one before that.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from providers.aws_client import AwsClient, Operation, filter_of, tags
from providers.base import Child, Needed, Page, Verb
from providers.listings import LAUNCH_KEY_TAG, launch_key_among, whole_listing

KIND = "volume"
LEFT = [filter_of("tag-key", LAUNCH_KEY_TAG), filter_of("status", "available", "error")]
"""The filters that leave the volumes of ours that no machine has. Those that are being made are not among them."""
_PAGE_SIZE = 1_000


class Volumes:
    def __init__(self, aws: AwsClient) -> None:
        self._aws = aws

    async def children(self, region: str) -> tuple[Child, ...]:
        async def page(cursor: str | None) -> Page[Child]:
            return await self._aws.call(
                Verb.CHILDREN,
                region,
                Operation("ec2", "describe_volumes"),
                lambda answer: Page(tuple(_children(region, answer)), answer.get("NextToken") or None),
                Filters=LEFT,
                MaxResults=_PAGE_SIZE,
                **({"NextToken": cursor} if cursor else {}),
            )

        return await whole_listing(Verb.CHILDREN, page)

    async def delete(self, region: str, volume: str) -> None:
        await self._aws.call(
            Verb.CHILDREN, region, Operation("ec2", "delete_volume"), lambda _: None, VolumeId=volume
        )


def _children(region: str, answer: Mapping[str, Any]) -> Iterator[Child]:
    for volume in answer["Volumes"]:
        key = launch_key_among((tags(volume.get("Tags", ())).get(LAUNCH_KEY_TAG),))
        if key is not None:
            yield Child(f"{region}/{volume['VolumeId']}", KIND, key, Needed.WHILE_IT_EXISTS)
