from pathlib import Path

import pytest

from tests.support.cloud.image import install


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels of this checkout with what they need, as pip leaves them in a folder. Nobody may change it."""
    scratch = tmp_path_factory.mktemp("wheels")
    scratch.chmod(0o755)
    install(scratch / "installed", scratch=scratch)
    return scratch / "installed"
