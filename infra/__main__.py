"""What `pulumi up` runs, in the folder of Pulumi.yaml."""

import sys
from pathlib import Path

# Pulumi puts this folder in front of the path, and not the one above it.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pulumi

from infra import config
from infra.program import Deployment

try:
    chosen = config.read(pulumi.get_stack(), pulumi.Config("splitplane").require_object("settings"))
except config.ConfigError as refused:
    raise pulumi.RunError(str(refused)) from None
for name, value in Deployment(chosen).outputs().items():
    pulumi.export(name, value)
