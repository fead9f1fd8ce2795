"""The containers of a task, as ECS reads them: the process, and one that writes the files it reads secrets from."""

import json
from collections.abc import Mapping
from typing import Any

from infra.services import FILES, Service

USER = "10001:10001"
STOP_SECONDS = 30
"""The reconciler ends within 28 s of SIGTERM, the verifier within 25."""
WRITE_FILES = """\
import os, pathlib
for name, value in os.environ.items():
    if name.startswith("FILE_"):
        path = pathlib.Path({folder!r}, bytes.fromhex(name[5:]).decode())
        path.touch(mode=0o400)
        path.chmod(0o600)
        path.write_text(value)
        path.chmod(0o400)
"""
"""ECS gives secrets to processes as variables only. So one container, which ends, turns its variables into files of a
volume that lives as long as the task; a file's name is in its variable's name, in hexadecimal digits."""
PROBE = "import urllib.request as u; u.urlopen('http://127.0.0.1:{port}{path}', timeout=4)"


def containers(
    service: Service,
    *,
    image: str,
    log: str,
    region: str,
    secrets: Mapping[str, str],
    facts: Mapping[str, str],
) -> str:
    """`secrets` are ARNs by name; `facts` fill in `{...}` in the environment."""
    shared: dict[str, Any] = {
        "image": image,
        "user": USER,
        "readonlyRootFilesystem": True,
        "linuxParameters": {"initProcessEnabled": True, "capabilities": {"drop": ["ALL"]}},
    }
    main = shared | {
        "name": service.name,
        "command": list(service.command),
        "essential": True,
        "stopTimeout": STOP_SECONDS,
        "environment": _environment(service, facts),
        "secrets": [{"name": name, "valueFrom": secrets[of]} for name, of in sorted(service.secrets.items())],
        "mountPoints": [{"sourceVolume": "tmp", "containerPath": "/tmp", "readOnly": False}],  # noqa: S108 - a volume of its own
        "logConfiguration": _log(log, region, service.name),
    }
    if service.port:
        main["portMappings"] = [{"containerPort": service.port, "protocol": "tcp"}]
    if service.health:
        port, path = service.health
        probe = ["CMD", "python", "-c", PROBE.format(port=port, path=path)]
        main["healthCheck"] = {
            "command": probe,
            "interval": 15,
            "timeout": 5,
            "retries": 3,
            "startPeriod": 60,
        }
    if not service.files:
        return json.dumps([main])
    writer = shared | {
        "name": "files",
        "command": ["python", "-c", WRITE_FILES.format(folder=FILES)],
        "essential": False,
        "secrets": [
            {"name": f"FILE_{name.encode().hex()}", "valueFrom": secrets[of]}
            for name, of in sorted(service.files.items())
        ],
        "mountPoints": [{"sourceVolume": "files", "containerPath": FILES, "readOnly": False}],
        "logConfiguration": _log(log, region, "files"),
    }
    main["mountPoints"] += [{"sourceVolume": "files", "containerPath": FILES, "readOnly": True}]
    main["dependsOn"] = [{"containerName": "files", "condition": "SUCCESS"}]
    return json.dumps([writer, main])


def _environment(service: Service, facts: Mapping[str, str]) -> list[dict[str, str]]:
    return [
        {"name": name, "value": value.format_map(facts)}
        for name, value in sorted(service.environment.items())
    ]


def _log(group: str, region: str, prefix: str) -> dict[str, object]:
    options = {"awslogs-group": group, "awslogs-region": region, "awslogs-stream-prefix": prefix}
    return {"logDriver": "awslogs", "options": options}
