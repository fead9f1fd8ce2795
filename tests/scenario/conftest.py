import pytest

from control_plane.db.engine import Database
from tests.support.clock import Clock
from tests.support.stage import Stage, set_stage


@pytest.fixture
async def stage(db: Database, api_db: Database, clock: Clock) -> Stage:
    """API services in the API's role, every loop in the reconciler's, one fake provider."""
    return await set_stage(db, clock, api_db=api_db)
