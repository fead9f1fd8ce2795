"""The cloud that tests of nodes share, because its server takes a quarter of a minute to build."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from control_plane.db.engine import Database, Role
from tests.support.database import fresh_database, login_url
from tests.support.kubernetes.node_cloud import NodeCloud, node_cloud


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def cloud(
    tmp_path_factory: pytest.TempPathFactory, server_url: str, template: str
) -> AsyncIterator[NodeCloud]:
    async with fresh_database(server_url, template) as url:
        db = Database(login_url(url, Role.RECONCILER), role=Role.RECONCILER, pool_size=16, readers=16)
        api_db = Database(login_url(url, Role.API), role=Role.API, pool_size=3, readers=2)
        try:
            async with node_cloud(tmp_path_factory.mktemp("cloud"), db, api_db) as made:
                yield made
        finally:
            await api_db.close()
            await db.close()
