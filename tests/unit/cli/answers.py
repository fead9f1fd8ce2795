"""Answers of the API as it gives them, for the CLI to draw. NOW is when they are looked at."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

NOW = datetime(2026, 11, 20, 15, 20, 0, tzinfo=UTC)
LEASE_ID = "le_019aa1b2c3d47e5f8a9b0c1d2e3f4a5b"
MACHINE_ID = "mc_019aa1b2c3d57e5f8a9b0c1d2e3f4a5c"
EARLIER_MACHINE_ID = "mc_019aa1b2c0007e5f8a9b0c1d2e3f4a00"
PROJECT_ID = "prj_019aa0000000700080000000000000ab"
RESEARCH_ID = "prj_019aa0000000700080000000000000ac"
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPBmD0FyyjtQq8qQk8m4yMQy2o0jYj5vRr6a9QzJm3Yw"
Json = dict[str, Any]


def at(**ago: float) -> str:
    return (NOW - timedelta(**ago)).isoformat().replace("+00:00", "Z")


def usd(nano: int) -> Json:
    sign, nano_abs = ("-" if nano < 0 else ""), abs(nano)
    return {"usd": f"{sign}{nano_abs // 10**9}.{nano_abs % 10**9:09d}", "nano": nano}


ORGANIZATION: Json = {
    "id": "org_019aa0000000700080000000000000aa",
    "name": "Heliotrope Labs",
    "state": "active",
    "platform": False,
    "gpu_quota": 64,
    "gpus_held": 9,
    "balance": usd(1_250_417_800_000),
    "held": usd(26_410_000_000),
    "available": usd(1_224_007_800_000),
    "created_at": at(days=40),
    "erased_at": None,
}
SUBJECT = "sa_019aa0000000700080000000000000ba"
USER = "user_019aa0000000700080000000000000ca"


def a_scope(kind: str = "organization", **ids: str) -> Json:
    return {"kind": kind, "project_id": None, "environment_id": None, "lease_id": None} | ids


ME: Json = {
    "subject": SUBJECT,
    "kind": "service_account",
    "name": "owner",
    "email": None,
    "organization_id": ORGANIZATION["id"],
    "organization": "Heliotrope Labs",
    "api_key_id": "key_019aa1b2c3d47e5f8a9b0c1d2e3f4a5b",
    "api_key_expires_at": None,
    "roles": [{"id": "rb_019aa0000000700080000000000000da", "role": "owner", "scope": a_scope()}],
    "permissions": [
        {
            "permission": "organizations.read",
            "everywhere": True,
            "project_ids": [],
            "environment_ids": [],
            "lease_ids": [],
        }
    ],
}
ME_OF_A_PROJECT: Json = ME | {
    "subject": USER,
    "kind": "user",
    "name": "Ada Lovelace",
    "email": "ada@example.com",
    "roles": [
        {
            "id": "rb_019aa0000000700080000000000000db",
            "role": "member",
            "scope": a_scope("project", project_id=PROJECT_ID),
        },
        {
            "id": "rb_019aa0000000700080000000000000dc",
            "role": "viewer",
            "scope": a_scope(
                "environment", project_id=RESEARCH_ID, environment_id="env_019aa0000000700080000000000000ea"
            ),
        },
    ],
    "permissions": [],
}
SESSIONS: Json = {
    "items": [
        {
            "id": "ses_019aa0000000700080000000000000da",
            "user": USER,
            "client": "splitplane on laptop",
            "address": "198.51.100.7",
            "created_at": at(days=9),
            "last_used_at": at(minutes=4),
            "expires_at": at(days=-21),
            "ended_at": None,
            "ended_why": None,
        },
        {
            "id": "ses_019aa0000000700080000000000000db",
            "user": USER,
            "client": "splitplane on ci-runner-0042.build.example.com",
            "address": "2001:db8:12:34::/64",
            "created_at": at(days=12),
            "last_used_at": at(days=2),
            "expires_at": at(days=-18),
            "ended_at": at(days=2),
            "ended_why": "signed_out",
        },
    ],
    "next_cursor": None,
}
USERS: Json = {
    "items": [
        {
            "id": USER,
            "email": "ada@example.com",
            "name": "Ada Lovelace",
            "state": "active",
            "created_at": at(days=9),
        },
        {
            "id": "user_019aa1000000700080000000000000cb",
            "email": "grace.hopper@navy.example.com",
            "name": "Grace Hopper",
            "state": "invited",
            "created_at": at(hours=3),
        },
    ],
    "next_cursor": None,
}
SERVICE_ACCOUNTS: Json = {
    "items": [
        {"id": SUBJECT, "name": "owner", "state": "active", "created_at": at(days=40)},
        {
            "id": "sa_019aa1000000700080000000000000bb",
            "name": "ci-runner",
            "state": "suspended",
            "created_at": at(days=2),
        },
    ],
    "next_cursor": None,
}
ROLE_BINDINGS: Json = {
    "items": [
        {
            "id": "rb_019aa0000000700080000000000000da",
            "subject": SUBJECT,
            "role": "owner",
            "scope": a_scope(),
            "granted_by": "administrator",
            "created_at": at(days=40),
        },
        {
            "id": "rb_019aa1000000700080000000000000db",
            "subject": USER,
            "role": "member",
            "scope": a_scope("project", project_id=RESEARCH_ID),
            "granted_by": SUBJECT,
            "created_at": at(days=2),
        },
    ],
    "next_cursor": None,
}
ENVIRONMENTS: Json = {
    "items": [
        {
            "id": f"env_019aa0000000700080000000000000e{digit}",
            "project_id": RESEARCH_ID,
            "name": name,
            "created_at": at(days=days),
        }
        for digit, name, days in (("a", "default", 3), ("b", "prod", 1))
    ],
    "next_cursor": None,
}
CERTIFICATE_ID = "cert_019aa1b2c3d47e5f8a9b0c1d2e3f4a5d"


def a_certificate(state: str = "signed", *, minutes: float = 10, **other: Any) -> Json:
    """An SSH certificate of the lease, which is valid for so many minutes more once it is signed."""
    signed = state not in ("wanted", "refused")
    return {
        "id": CERTIFICATE_ID,
        "lease_id": LEASE_ID,
        "state": state,
        "certificate": "ssh-ed25519-cert-v01@openssh.com AAAAIHNzaC1lZDI1NTE5" if signed else None,
        "valid_after": at(minutes=1) if signed else None,
        "valid_before": at(minutes=-minutes) if signed else None,
        "serial": "2039871204471902113",
        "fingerprint": f"SHA256:{'k' * 43}",
        "subject": SUBJECT,
        "credential": "key_019aa1b2c3d47e5f8a9b0c1d2e3f4a5d",
        "requested_at": at(seconds=1),
        "signed_at": at() if signed else None,
        "refused_why": "waited_too_long" if state == "refused" else None,
        "revoked_at": at() if state == "revoked" else None,
        "revoked_why": "requested" if state == "revoked" else None,
        **other,
    }


CONSOLE_ID = "con_019aa1b2c3d47e5f8a9b0c1d2e3f4a5e"


def a_console(source: str | None = "provider", **other: Any) -> Json:
    """What was found of the lease's console; None while nobody looked."""
    said = {
        "provider": ("read", "not_asked"),
        "machine": ("not_offered", "read"),
        "steps": ("empty", "unreachable"),
    }
    provider, machine = said.get(source or "", (None, None))
    lines = ["[    0.000000] Linux version 6.8.0", "[   12.034561] sshd: [red]no host keys[/red]"]
    return {
        "id": CONSOLE_ID,
        "lease_id": LEASE_ID,
        "state": "read" if source else "wanted",
        "requested_at": at(seconds=4),
        "answered_at": at(seconds=1) if source else None,
        "source": source,
        "provider": provider,
        "machine": machine,
        "lines": [] if source in (None, "steps") else lines,
        "is_cut": source == "machine",
        "steps": EXPLANATION["journal"][:4] if source else [],
        **other,
    }


def a_gpu(index: int, **other: Any) -> Json:
    return {
        "index": index,
        "uuid": f"GPU-0000000{index}-0000-0000-0000-000000000000",
        "lost": False,
        "utilisation_percent": 90 + index,
        "memory_used_mib": 70_000 + 512 * index,
        "memory_total_mib": 81_559,
        "power_watts": 612.5 + index,
        "power_limit_watts": 700.0,
        "temperature_celsius": 61 + index,
        "memory_temperature_celsius": 80,
        "sm_mhz": 1_755,
        "throttled_by": ["power_limit"],
        "ecc_uncorrected": 0,
        "nvlinks_active": 18,
        "nvlinks": 18,
        "pcie_generation": 5,
        "pcie_width": 16,
        **other,
    }


def some_metrics(**other: Any) -> Json:
    """What a machine with four GPUs measured, one of which is lost and one too hot."""
    unknown = dict.fromkeys(
        (
            "utilisation_percent",
            "memory_used_mib",
            "power_watts",
            "temperature_celsius",
            "sm_mhz",
            "throttled_by",
        )
    )
    points = [
        {
            "at": at(seconds=900 - 15 * number),
            "machine_id": MACHINE_ID,
            "gpu_utilisation_percent": float(min(100, 4 * number)),
            "gpu_memory_used_mib": 300_000,
            "gpu_power_watts": 1_200.0 + 20 * number,
            "gpu_temperature_celsius": 50 + number // 4,
            "cpu_percent": 12.5,
            "memory_used_mib": 400_000,
            "kv_cache_percent": None,
            "requests_running": 12,
            "requests_waiting": 3,
            "generated_tokens_per_second": 2_000 + number,
        }
        for number in range(58)
    ]
    return {
        "lease_id": LEASE_ID,
        "latest": {
            "machine_id": MACHINE_ID,
            "at": at(seconds=7),
            "age_seconds": 7.0,
            "clock_ahead_seconds": -0.2,
            "failure": None,
            "gpus": [
                a_gpu(0),
                a_gpu(1, throttled_by=["power_limit", "hardware_thermal"], temperature_celsius=93),
                a_gpu(2, lost=True, **unknown),
                a_gpu(3, ecc_uncorrected=2, nvlinks_active=17),
            ],
            "host": {
                "cpus": 192,
                "cpu_percent": 12.5,
                "memory_total_mib": 2_063_500,
                "memory_available_mib": 1_600_000,
                "disk_used_percent": 81.4,
            },
            "servers": [
                {
                    "port": 8000,
                    "pod_ip": None,
                    "engine": "vllm",
                    "kv_cache_percent": 71.2,
                    "running": 12,
                    "waiting": 3,
                    "generated_tokens_per_second": 2_057,
                    "prompt_tokens_per_second": 9_000,
                    "first_token_milliseconds": 312.0,
                }
            ],
        },
        "window": {"since": at(seconds=900), "until": at(seconds=0), "step_seconds": 15, "points": points},
        **other,
    }


def some_health(verdict: str = "healthy", **other: Any) -> Json:
    """How a machine is: all is well, or a GPU is lost."""
    well = verdict == "healthy"
    checks = (
        ("samples", at(seconds=7), 7.0, True, "It comes regularly."),
        ("heartbeat", at(seconds=500), 500.0, False, "It is overdue; what we know may be old."),
        (
            ("look", None, None, None, "Nothing called for a look of ours.")
            if well
            else ("look", at(seconds=35), 35.0, False, "We saw: a GPU does not answer.")
        ),
        ("provider", None, None, True, "The last list of its provider shows it running."),
        ("proof", None, None, None, "Its GPUs were not challenged in this lease."),
    )
    machine = {
        "machine_id": MACHINE_ID,
        "verdict": verdict,
        "fault": None if well else "gpu_lost",
        "why": None if well else "GPU 2 does not answer",
        "since": None if well else at(seconds=95),
        "judged_at": None if well else at(seconds=5),
        "faults": []
        if well
        else [_fault("nvlink_down", 2, "degraded", 4_000), _fault("gpu_lost", 2, verdict, 95)],
        "alerts": []
        if well
        else [
            {
                "alert": "throughput_degradation",
                "since": at(seconds=900),
                "age_seconds": 900.0,
                "why": "its customer was told, and the workload is asked for smaller batches",
            }
        ],
        "checks": [
            dict(zip(("check", "at", "age_seconds", "ok", "detail"), check, strict=True)) for check in checks
        ],
    }
    return {"lease_id": LEASE_ID, "machines": [machine], **other}


def _fault(fault: str, gpu: int, verdict: str, seconds: int) -> Json:
    words = {
        "nvlink_down": "an NVLink is down: GPU 2 has 17 of 18 NVLinks",
        "gpu_lost": "GPU 2 does not answer",
    }
    return {
        "fault": fault,
        "gpu": gpu,
        "xid": None,
        "verdict": verdict,
        "source": "sample",
        "first_at": at(seconds=seconds),
        "age_seconds": float(seconds),
        "last_at": at(seconds=5),
        "confirmed_at": at(seconds=35) if fault == "gpu_lost" else None,
        "detail": words[fault],
    }


def health_counts(*names: str, by: str = "project") -> Json:
    """Counts of machines, in groups with these names."""

    def group(name: str | None, factor: int) -> Json:
        counted = {"machines": 5, "gpus": 40, "healthy": 3, "unhealthy": 2, "degraded": 1, "quarantined": 1}
        counted |= {"maintenance_required": 0, "lost": 0, "silent": 1}
        return {"name": name} | {word: factor * count for word, count in counted.items()}

    groups = [group(name, 1) for name in names]
    return {"by": by, "at": at(seconds=0), "total": group(None, len(names)), "groups": groups}


FIREWALL_RULE: Json = {
    "id": "fw_019aa1b2c3d47e5f8a9b0c1d2e3f4a5d",
    "lease_id": LEASE_ID,
    "protocol": "tcp",
    "ports": "8080",
    "sources": ["203.0.113.0/24", "2001:db8::/32"],
    "created_at": at(minutes=3),
}


def a_firewall(state: str = "applied", **other: Any) -> Json:
    """The firewall of the lease, with two rules."""
    everybody = {
        "id": f"fw_{'1' * 32}",
        "ports": "6000-6010",
        "protocol": "udp",
        "sources": ["0.0.0.0/0", "::/0"],
    }
    return {
        "lease_id": LEASE_ID,
        "state": state,
        "problem": None,
        "provider": "follows",
        "provider_applied_at": at(minutes=2),
        "applied_at": at(minutes=2),
        "looked_at": at(minutes=1),
        "rules": [FIREWALL_RULE, FIREWALL_RULE | everybody],
        **other,
    }


KUBECONFIG_ID = "kc_019aa1b2c3d47e5f8a9b0c1d2e3f4a5e"
KUBECONFIG_FILE: Json = {
    "clusters": [
        {
            "name": "x",
            "cluster": {
                "server": "https://k8s-1:6443",
                "certificate-authority-data": "Y2E=",
                "tls-server-name": "cl-1",
            },
        }
    ],
    "users": [{"name": "x", "user": {"token": "a-token"}}],
    "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x", "namespace": "prj-1"}}],
}


def a_kubeconfig(state: str = "issued", **other: Any) -> Json:
    """A kubeconfig for a key pair that nobody has."""
    issued = state not in ("wanted", "refused")
    return {
        "id": KUBECONFIG_ID,
        "name": "laptop",
        "cluster_id": "cl_019aa1b2c3d47e5f8a9b0c1d2e3f4a5d",
        "cluster": "eu-1",
        "project_id": "prj_019aa1b2c3d47e5f8a9b0c1d2e3f4a5d",
        "project": "research",
        "namespace": "prj-019aa1b2c3d47e5f8a9b0c1d2e3f4a5d",
        "role": "edit",
        "state": state,
        "sealed": None,
        "expires_at": at(hours=-8) if issued else None,
        "rotates": None,
        "subject": SUBJECT,
        "credential": "key_019aa1b2c3d47e5f8a9b0c1d2e3f4a5d",
        "requested_at": at(seconds=1),
        "issued_at": at() if issued else None,
        "refused_why": "waited_too_long" if state == "refused" else None,
        "revoked_at": at() if state == "revoked" else None,
        "revoked_why": "requested" if state == "revoked" else None,
        **other,
    }


def sealed(request: httpx.Request, file: Json = KUBECONFIG_FILE, **other: Any) -> httpx.Response:
    """A kubeconfig that is issued at once, sealed for the key of the request."""
    public = X25519PublicKey.from_public_bytes(base64.b64decode(json.loads(request.content)["public_key"]))
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
    made = suite.encrypt(json.dumps(file).encode(), public, info=KUBECONFIG_ID.encode())
    return httpx.Response(202, json=a_kubeconfig(sealed=base64.b64encode(made).decode(), **other))


CLUSTERS: Json = {
    "items": [
        {
            "id": f"cl_019aa0000000700080000000000000f{digit}",
            "name": name,
            "region": "eu-central-1",
            "organization_id": organization,
            "state": state,
            "version": version,
            "endpoint": endpoint,
            "failing_since": failing and at(minutes=3),
            "failing_why": failing,
            "created_at": at(days=days),
            "ready_at": None if version is None else at(days=days),
        }
        for digit, name, organization, state, version, endpoint, failing, days in (
            ("a", "eu-1", None, "ready", "v1.36.3+k3s1", "https://k8s-1.example.com:6443", None, 3),
            (
                "b",
                "acme",
                "org_019aa0000000700080000000000000aa",
                "building",
                None,
                None,
                "Unreachable: no route to k8s-2",
                0,
            ),
        )
    ],
    "next_cursor": None,
}
AGENTS: Json = {
    "items": [
        {
            "machine_id": f"mc_019aa0000000700080000000000000{digit}1",
            "lease_id": f"le_019aa0000000700080000000000000{digit}2",
            "state": state,
            "agent_sha256": None if age is None else "5e" * 32,
            "installed_at": None if age is None else at(days=2),
            "why": why,
            "reported_at": None if age is None else at(seconds=age),
            "age_seconds": age,
            "received": received,
            "dropped": None if age is None else 0,
            "uptime_seconds": None if age is None else 172_800,
            "results": [] if age is None else [
                {
                    "task": "report", "at": at(seconds=age), "done": True,
                    "detail": "8 GPUs, 0 lost, 0 errors, nvml", "digest": "ab" * 32,
                }
            ],
        }
        for digit, state, age, received, why in (
            ("a", "reporting", 42, 2_880, None),
            ("b", "silent", 1_260, 120, None),
            ("c", "waiting", None, 0, "StepFailed: install agent (exit 1): no space left on device"),
        )
    ],
    "next_cursor": None,
}  # fmt: skip


def _node_pool(digit: str, name: str, state: str, ready: int, **other: Any) -> Json:
    return {
        "id": f"np_019aa0000000700080000000000000f{digit}",
        "name": name,
        "cluster": "eu-1",
        "cluster_id": "cl_019aa0000000700080000000000000fa",
        "project": "default",
        "project_id": "prj_019aa0000000700080000000000000aa",
        "environment": "default",
        "environment_id": "env_019aa0000000700080000000000000aa",
        "request": {
            "sku": "h100-sxm.8x",
            "regions": ["eu"],
            "providers": [],
            "price_usd_per_hour_max": None,
            "priority": 50,
        },
        "nodes": 2,
        "node_labels": {"team": "vision"},
        "node_taints": [{"key": "batch", "value": "only", "effect": "NoSchedule"}],
        "state": state,
        "leases": {
            "live": 2,
            "with_machine": 1,
            "joining": 1 - ready,
            "healthy": 0,
            "ready": ready,
            "ending": 0,
        },
        "price_per_hour": usd(51_040_000_000),
        "wait_timeout_seconds": 1_800,
        "gives_up_at": None,
        "scaling": None,
        "waiting": None,
        "why": None,
        "created_at": at(minutes=12),
        "ready_at": at(minutes=5) if ready else None,
        "gone_at": None,
        **other,
    }


NODE_POOLS: Json = {
    "items": [
        _node_pool("a", "train", "pending", 0, gives_up_at=at(minutes=-18)),
        _node_pool(
            "b",
            "batch",
            "ready",
            1,
            waiting={
                "since": at(minutes=3),
                "code": "balance_too_low",
                "why": "The first hour takes a hold of 25.52 USD and 3.00 USD is available; top up the balance.",
            },
        ),
    ],
    "next_cursor": None,
}


SCALED_POOLS: Json = {
    "items": [
        _node_pool(
            "c",
            "grow",
            "ready",
            1,
            scaling={
                "policy": "nights",
                "nodes_min": 0,
                "nodes_max": 8,
                "conditions": [
                    {
                        "type": "Ready",
                        "status": False,
                        "reason": "NodesComing",
                        "message": "1 of 2 nodes are open for pods.",
                        "since": at(minutes=4),
                    },
                    {
                        "type": "CapacityAvailable",
                        "status": False,
                        "reason": "NoCapacity",
                        "message": "1 node waits for stock: no provider has h100-sxm.8x in eu",
                        "since": at(minutes=4),
                    },
                ],
                "object_missing_since": None,
                "scaled_at": at(minutes=4),
                "scaled_why": "the ScalingPolicy nights ordered 1 node, for pods that wait or for its minimum",
                "looked_at": at(minutes=0),
            },
        ),
    ],
    "next_cursor": None,
}


def _node(digit: str, pool: str, state: str, steps: tuple[str, ...], **other: Any) -> Json:
    return {
        "id": f"nd_019aa0000000{digit}0007000800000000000",
        "name": f"node-019aa0000000{digit}0007000800000000000",
        "cluster": "eu-1",
        "cluster_id": "cl_019aa0000000700080000000000000fa",
        "node_pool": pool,
        "node_pool_id": "np_019aa0000000700080000000000000fa",
        "project": "default",
        "project_id": "prj_019aa0000000700080000000000000aa",
        "lease": f"{pool}-00000f{digit}",
        "lease_id": "le_019aa0000000700080000000000000fa",
        "machine_id": "mc_019aa0000000700080000000000000fa",
        "gpu_model": "h100-sxm-80gb",
        "gpu_count": 8,
        "state": state,
        "steps": [{"step": step, "at": at(minutes=9 - number)} for number, step in enumerate(steps)],
        "failing_why": None,
        "conditions": {},
        "leave_reason": None,
        "leave_why": None,
        "created_at": at(minutes=10),
        "ready_at": None,
        "unready_since": None,
        "leaving_at": None,
        "gone_at": None,
        **other,
    }


LOST_NODE = _node(
    "c",
    "batch",
    "gone",
    ("prepared", "tunnelled", "started", "registered", "measured", "healthy", "opened"),
    leave_reason="lost",
    leave_why="its node was not ready for 7 min, and its provider does not list it",
    created_at=at(hours=3),
    ready_at=at(hours=2),
    leaving_at=at(minutes=14),
    gone_at=at(minutes=11),
)
NODES: Json = {
    "items": [
        _node(
            "a",
            "train",
            "joining",
            ("prepared", "tunnelled"),
            failing_why="its agent did not register within 60 seconds",
        ),
        _node(
            "b",
            "batch",
            "ready",
            ("prepared", "tunnelled", "started", "registered", "measured", "healthy", "opened"),
            ready_at=at(minutes=2),
            conditions={"Ready": "True", "MemoryPressure": "False", "DiskPressure": "True"},
            agent={"state": "silent", "reported_at": at(minutes=21), "results": []},
        ),
    ],
    "next_cursor": None,
}
NODES_OF_BATCH: Json = {"items": [NODES["items"][1], LOST_NODE], "next_cursor": None}


def _report(node: Json, organization: str, evidence: tuple[tuple[str, str], ...], **other: Any) -> Json:
    return {
        "id": node["id"],
        "node": node,
        "organization": organization,
        "organization_id": "org_019aa0000000700080000000000000aa",
        "account": "lambda_cloud",
        "address": "192.0.2.10",
        "evidence": [
            {
                "step": step,
                "at": at(minutes=9 - number),
                "says": says,
                "given_up": says.startswith("given up"),
                "evidence": {},
            }
            for number, (step, says) in enumerate(evidence)
        ],
        "sold": {"vcpus": 208, "memory_gib": 1_800, "gpus": 8},
        "claims": {"cpu": "208", "memory": "1849Gi", "nvidia.com/gpu": "8"},
        "version": "v1.36.3+k3s1",
        "overlay_number": 2,
        "endpoint": "192.0.2.10:51820",
        "tunnels_read_at": at(minutes=2),
        "server_handshake_at": at(minutes=3),
        "key_holders": None,
        "key_change_requested_at": None,
        "failed_tries": 0,
        "deadline_at": at(minutes=-10),
        **other,
    }


POOL_REPORTS: Json = {
    "items": [
        {
            "id": pool["id"],
            "node_pool": pool,
            "organization": organization,
            "organization_id": "org_019aa0000000700080000000000000aa",
        }
        for pool, organization in (
            (NODE_POOLS["items"][0], "lab"),
            (NODE_POOLS["items"][1], "acme"),
            (SCALED_POOLS["items"][0], "acme"),
            (
                _node_pool("d", "old", "deleting", 0)
                | {"leases": NODE_POOLS["items"][0]["leases"] | {"live": 0, "with_machine": 0, "ending": 2}},
                "other",
            ),
            (
                _node_pool("e", "done", "ready", 2)
                | {
                    "leases": NODE_POOLS["items"][0]["leases"] | {"with_machine": 2, "joining": 0, "ready": 2}
                },
                "other",
            ),
        )
    ],
    "next_cursor": None,
}
ROTATING: Json = _report(NODES["items"][1], "lab", (), key_change_requested_at=at(seconds=20))
"""A node whose WireGuard key is being changed, as an operator asked."""
NODE_REPORTS: Json = {
    "items": [
        _report(
            NODES["items"][0],
            "lab",
            (
                (
                    "prepared",
                    "3 files of K3s with the right digest, kernel 6.12.1, 12 settings of the kernel",
                ),
                ("tunnelled", "packets of up to 1420 bytes pass to the server at 10.64.0.1"),
            ),
            failed_tries=2,
        ),
        _report(NODES["items"][1], "acme", ()),
        _report(
            LOST_NODE,
            "acme",
            (
                ("cut_off", "every other member was read without its key"),
                ("deleted", "its Node, its password and its token"),
                ("cleaned", "given up: Unreachable: no route to host"),
            ),
            key_holders=0,
        ),
    ],
    "next_cursor": None,
}
POOL: Json = {
    "id": "pl_019aa000000070008000000000000001",
    "name": "h100-eu",
    "sku": "h100-sxm.1x",
    "region": "eu",
    "sla": None,
    "state": "active",
    "policy": "newsvendor",
    "machines_min": 1,
    "machines_max": 4,
    "step_max": 2,
    "idle_per_day": usd(100_000_000_000),
    "waiting_per_hour": usd(20_000_000_000),
    "wanted": 3,
    "target": 3,
    "verified": 2,
    "starting": 1,
    "why": "0.83 requests are expected within a lead time of 312 s; 3 suffice with a probability of 89%.",
    "created_at": at(days=4),
    "decided_at": at(seconds=3),
    "last_day": {
        "since": at(days=1),
        "requests": 41,
        "hits": 37,
        "hit_rate": 37 / 41,
        "idle_cost": usd(61_234_500_000),
        "waited_seconds_hit": 1.4,
        "waited_seconds_miss": 318.2,
        "avoided_wait_seconds": 11_492.2,
    },
    "idle_costs": {
        "machines": 37,
        "mean": usd(1_654_900_000),
        "median": usd(640_000_000),
        "p90": usd(4_310_000_000),
        "mean_per_hour": usd(2_490_000_000),
        "p90_per_hour": usd(3_900_000_000),
    },
    "last_week": {
        "since": at(days=7),
        "requests": 0,
        "hits": 0,
        "hit_rate": None,
        "idle_cost": usd(0),
        "waited_seconds_hit": None,
        "waited_seconds_miss": None,
        "avoided_wait_seconds": 0.0,
    },
    "decisions": [
        {
            "at": at(minutes=12),
            "wanted": 3,
            "target": 3,
            "verified": 2,
            "starting": 0,
            "ordered": 1,
            "ended": 0,
            "dry_run": dry_run,
            "why": "0.83 requests are expected within a lead time of 312 s.",
        }
        for dry_run in (False, True)
    ],
}
POOLS: Json = {
    "items": [
        {name: value for name, value in POOL.items() if name not in ("last_week", "decisions", "idle_costs")},
        {
            **{
                name: value
                for name, value in POOL.items()
                if name not in ("last_week", "decisions", "idle_costs")
            },
            "id": "pl_019aa000000070008000000000000002",
            "name": "gold-us",
            "region": "us",
            "sla": "gold",
            "state": "dry_run",
            "last_day": None,
        },
    ],
    "next_cursor": None,
}


def _simulated(policy: str, parameter: float | None, hits: int, idle_usd: int, mean: float) -> Json:
    return {
        "policy": policy,
        "parameter": parameter,
        "requests": 100,
        "hits": hits,
        "idle_cost": usd(idle_usd * 1_000_000_000),
        "idle_machine_hours": idle_usd / 2.5,
        "idle_cost_median": usd(idle_usd * 4_000_000),
        "idle_cost_p90": usd(idle_usd * 30_000_000),
        "waited_seconds_mean": mean,
        "waited_seconds_p95": 300.0,
        "waiting_cost": usd(int(mean * 100 * 20 / 3_600 * 1_000_000_000)),
        "total_cost": usd(idle_usd * 1_000_000_000 + int(mean * 100 * 20 / 3_600 * 1_000_000_000)),
    }


POOL_SIMULATION: Json = {
    "requests": 100,
    "pools": 2,
    "hours": 335.5,
    "policies": [
        _simulated("none", None, 0, 0, 300.0),
        _simulated("fixed", 2.0, 71, 840, 87.0),
        _simulated("newsvendor", 20.0, 83, 310, 51.0),
    ],
    "curve": [
        _simulated("none", None, 0, 0, 300.0),
        *(
            _simulated("fixed", n, hits, 420 * n, 3.0 * (100 - hits))
            for n, hits in ((1, 52), (2, 71), (3, 84))
        ),
        *(
            _simulated("newsvendor", usd, hits, cost, 3.0 * (100 - hits))
            for usd, hits, cost in ((5, 60, 150), (20, 83, 310), (100, 96, 800))
        ),
    ],
}
SERVER_HOSTS: Json = {
    "items": [
        {
            "name": name,
            "region": "eu-central-1",
            "address": address,
            "ssh_port": 22,
            "host_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl",
            "outside": "k8s-1.example.com",
            "cluster_id": cluster,
            "cluster": cluster and "eu-1",
            "added_at": at(days=4),
        }
        for name, address, cluster in (
            ("k8s-1", "192.0.2.10", "cl_019aa0000000700080000000000000fa"),
            ("k8s-2", "192.0.2.11", None),
        )
    ],
    "next_cursor": None,
}
NETWORKS: Json = {
    "items": [
        {
            "id": f"net_019aa0000000700080000000000000f{digit}",
            "project_id": RESEARCH_ID,
            "name": name,
            "range": f"10.64.{third}.0/22",
            "members": members,
            "members_max": 1_020,
            "labels": labels,
            "created_at": at(days=days),
        }
        for digit, name, third, members, labels, days in (
            ("a", "default", 0, 2, {}, 3),
            ("b", "training", 4, 0, {"team": "vision"}, 1),
        )
    ],
    "next_cursor": None,
}
NETWORK_MEMBERS: Json = {
    "items": [
        {
            "lease_id": f"le_019aa00000007000800000000000000{number}",
            "lease": f"train-{number}",
            "address": f"10.64.0.{number + 1}",
            "joined_at": at(hours=number),
        }
        for number in (1, 2)
    ],
    "next_cursor": None,
}
SSH_KEYS: Json = {
    "items": [
        {
            "id": f"ssh_019aa000000070008000000000000{number:03d}",
            "name": name,
            "public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample",
            "fingerprint": f"SHA256:{letter * 43}",
            "project_id": None,
            "created_at": at(days=number * 9),
        }
        for number, name, letter in ((1, "laptop", "k"), (2, "ci runner @ forge", "Q"))
    ]
}


def an_api_key(name: str, digits: str, **changes: Any) -> Json:
    return {
        "id": f"key_{digits:0<32}",
        "name": name,
        "subject": SUBJECT,
        "hint": "spk_Zk3q...9QxA",
        "scopes": None,
        "project_ids": None,
        "rotates": None,
        "created_at": at(days=40),
        "expires_at": None,
        "revoked_at": None,
        "last_used_at": None,
    } | changes


API_KEYS: Json = {
    "items": [
        an_api_key("first key", "019aa000000070008", hint="spk_plan...6789", last_used_at=at(minutes=2)),
        an_api_key(
            "ci runner @ forge",
            "019aa11000017000a",
            created_at=at(days=2),
            subject=USER,
            scopes=["leases.read"],
            expires_at=at(days=-30),
        ),
        an_api_key("on-call", "019aa12000017000b", hint="spk_aaaa...zzzz", revoked_at=at(days=1)),
    ]
}
ISSUED: Json = {
    "key": an_api_key("ci", "019aa1b2c3d47e5f8", created_at=at(seconds=0)),
    "secret": "spk_Zk3qTZ0u4mC1vYb8nD5s9QxA",
}
OTHER_ORGANIZATION: Json = ORGANIZATION | {
    "id": "org_019aa1b2c3d470008000000000000abc",
    "name": "fresh",
    "state": "suspended",
    "gpus_held": 0,
    "balance": usd(-1_500_000_000),
    "held": usd(0),
    "available": usd(-1_500_000_000),
    "created_at": at(days=2),
}
ORGANIZATIONS: Json = {"items": [ORGANIZATION, OTHER_ORGANIZATION], "next_cursor": None}
LEASE_END: Json = {
    "id": LEASE_ID,
    "name": "train-1",
    "organization_id": OTHER_ORGANIZATION["id"],
    "state": "ending",
    "end_reason": "ended_by_operator",
    "end_why": "an operator ended it: ticket 4711",
    "billed_until": at(minutes=0),
    "ended_at": None,
}
CREATED_ORGANIZATION: Json = {
    "organization": OTHER_ORGANIZATION | {"state": "active", "created_at": at(seconds=0)},
    "key": ISSUED["key"] | {"name": "first key"},
    "secret": ISSUED["secret"],
}
CLOSURE: Json = {
    "organization": OTHER_ORGANIZATION | {"state": "closing", "gpus_held": 0, "held": usd(1_250_000_000)},
    "event": {
        "number": 12,
        "at": at(seconds=0),
        "event": "closure_requested",
        "state_before": "active",
        "state_after": "closing",
        "reason": "contract ended",
        "actor_kind": "operator",
        "actor": "key_019aa11000017000a",
        "request_id": "req_1",
        "ended": {
            "waiting_leases": 1,
            "starting_leases": 0,
            "ready_leases": 3,
            "ending_leases": 1,
            "api_keys": 2,
            "holds": usd(61_400_000_000),
        },
        "held": usd(1_250_000_000),
        "balance": usd(1_250_417_800_000),
    },
}
SUSPENSION: Json = CLOSURE["event"] | {
    "number": 9,
    "at": at(days=3),
    "event": "suspended",
    "state_after": "suspended",
    "reason": "unpaid since May",
}
HISTORY: Json = {"items": [SUSPENSION, CLOSURE["event"]], "next_cursor": None}
RECONCILIATION: Json = {
    "gpu_seconds": 437_368,
    "machine_seconds": 0,
    "rated": usd(314_258_422_222),
    "posted": usd(314_258_422_222),
    "balance": usd(1_250_417_800_000),
    "difference": usd(0),
}

PROJECTS: Json = {
    "items": [
        {"id": PROJECT_ID, "name": "default", "created_at": at(days=40)},
        {"id": RESEARCH_ID, "name": "research @ heliotrope", "created_at": at(days=3)},
    ],
    "next_cursor": None,
}
NAMES: Json = {
    "GET /v1/users": USERS,
    "GET /v1/service-accounts": SERVICE_ACCOUNTS,
    "GET /v1/projects": PROJECTS,
    f"GET /v1/projects/{RESEARCH_ID}/environments": ENVIRONMENTS,
}
"""What ids are shown by, where a person may read it."""


def a_sku(name: str, model: str | None, count: int, nano: int, *, vcpus: int, memory: int, disk: int) -> Json:
    return {
        "name": name,
        "gpu_model": model,
        "gpu_count": count,
        "vcpus": vcpus,
        "memory_gib": memory,
        "disk_gib": disk,
        "capacity": "vm",
        "proof": "listed" if model is None or model.startswith("a10") else "proven",
        "price_per_gpu_hour": usd(nano) if model else None,
        "price_per_hour": usd(nano * max(1, count)),
        "price_per_hour_stopped": usd(nano * max(1, count)),
        "list_price_per_hour": usd(nano * max(1, count)),
    }


SKUS: Json = {
    "items": [
        a_sku("a10x1", "a10-24gb", 1, 790_000_000, vcpus=30, memory=200, disk=1_400),
        a_sku("h100x1", "h100-sxm-80gb", 1, 2_490_000_000, vcpus=26, memory=225, disk=2_750)
        | {
            "list_price_per_hour": usd(2_990_000_000),
            "regions": [{"region": "eu", "price_per_hour": usd(2_690_000_000), "price_per_hour_spot": None}],
        },
        a_sku("h100x8", "h100-sxm-80gb", 8, 2_990_000_000, vcpus=208, memory=1_800, disk=22_000)
        | {"price_per_hour_spot": usd(8_720_000_000), "price_per_hour_interruptible": usd(19_920_000_000)}
        | {"price_per_hour_committed": usd(20_720_000_000), "committed_days": 365},
        a_sku("b200x8-reserved", "b200-sxm-180gb", 8, 5_150_000_000, vcpus=224, memory=3_600, disk=28_000),
        a_sku("cpu.16x", None, 0, 640_000_000, vcpus=16, memory=64, disk=100),
    ]
}


def an_offer(provider: str, region: str, kind: str, model: str | None, count: int, **changes: Any) -> Json:
    return {
        "key": f"{provider}/{region}/{kind}",
        "provider": provider,
        "region": region,
        "native_type": kind,
        "gpu_model": model,
        "gpu_count": count,
        "vcpus": 208,
        "memory_gib": 1_800,
        "disk_gib": 22_000,
        "capacity": "vm",
        "available": True,
        "confidence": "live",
        "observed_at": at(seconds=12),
        "age_seconds": 12,
        "price_per_hour": usd(23_920_000_000),
        "skus": ["h100x8"],
        "cost_per_hour": None,
    } | changes


def offers(*, cost: bool) -> Json:
    paid = usd(19_900_000_000) if cost else None
    return {
        "items": [
            an_offer("lambda_cloud", "us-east-1", "gpu_8x_h100_sxm5", "h100-sxm-80gb", 8, cost_per_hour=paid),
            an_offer("lambda_cloud", "eu-central-1", "gpu_8x_h100_sxm5", "h100-sxm-80gb", 8, available=False),
            an_offer(
                "local", "eu-north-1", "nspawn.h100x8", "h100-sxm-80gb", 8, confidence="advisory", age_seconds=640,
                power=["reboot", "stop", "start"], price_per_hour_stopped=usd(960_000_000),
            ),
            an_offer(
                "aws", "us-east-1", "p5.48xlarge", "h100-sxm-80gb", 8, confidence="advisory",
                spot=True, eviction_notice_seconds=120, price_per_hour=usd(8_720_000_000), network_gbps=100,
            ),
            an_offer(
                "hyperstack", "us-west-1", "n3-L40Sx4", "l40s-48gb", 4,
                confidence="static", age_seconds=9_000, price_per_hour=None, skus=[],
            ),
        ]
    }  # fmt: skip


def offers_with_cpus() -> Json:
    """With a machine that has no GPUs, and was stopped for a while."""
    changes: Json = {"vcpus": 16, "memory_gib": 64, "price_per_hour": usd(640_000_000), "skus": ["cpu.16x"]}
    without = an_offer("local", "eu-north-1", "cpu-16", None, 0, **changes)
    return {"items": [without, *offers(cost=False)["items"]]}


def a_candidate(provider: str, region: str, kind: str, *, cost: int | None = None) -> Json:
    return {
        "key": f"{provider}/{region}/{kind}",
        "provider": provider,
        "region": region,
        "native_type": kind,
        "confidence": "live",
        "cost_per_hour": None if cost is None else usd(cost),
    }


def a_rejected(provider: str, region: str, kind: str, code: str, why: str) -> Json:
    key = f"{provider}/{region}/{kind}"
    return {"key": key, "provider": provider, "region": region, "native_type": kind, "code": code, "why": why}


CANDIDATES = [
    a_candidate("local", "eu-north-1", "nspawn.h100x8"),
    a_candidate("lambda_cloud", "eu-central-1", "gpu_8x_h100_sxm5"),
]
REJECTED = [
    a_rejected(
        "hyperstack", "eu-west-1", "n3-H100x8", "costs_more_than_sold",
        "It costs us 26.40 USD per hour and is sold at 23.92 USD.",
    ),
    a_rejected(
        "lambda_cloud", "us-east-1", "gpu_8x_h100_sxm5", "region_excluded", "us-east-1 is not in eu.",
    ),
    a_rejected(
        "lambda_cloud", "eu-central-1", "gpu_1x_h100_sxm5", "shape_differs",
        "gpu_1x_h100_sxm5 is 1 x h100-sxm-80gb, 26 vCPUs, 225 GiB memory, 2750 GiB disk; the SKU promises"
        " 8 x h100-sxm-80gb, 208 vCPUs, 1800 GiB memory, 22000 GiB disk.",
    ),
]  # fmt: skip


def a_rule(rule: str, verdict: str = "allowed", **other: Any) -> Json:
    absent = dict.fromkeys(("level", "subject", "limit", "used", "wanted", "code", "why"))
    return absent | {"stage": "envelope", "rule": rule, "verdict": verdict} | other


RULES = [
    a_rule("organization", stage="identity", limit="active", used="active"),
    a_rule("gpus", level="ceiling", limit="64", used="16", wanted="8"),
    a_rule("regions", level="project", limit="eu", wanted="eu"),
    a_rule("balance", stage="money", limit="1000.000000000", wanted="23.920000000"),
]
REFUSING = a_rule("gpus", "refused", level="project", limit="64", used="64", wanted="8")
QUOTE: Json = {
    "verdict": {"admitted": True, "code": None, "why": None, "rules": RULES},
    "sku": "h100x8",
    "project": "default",
    "environment": "default",
    "price_per_gpu_hour": usd(2_990_000_000),
    "price_per_hour": usd(23_920_000_000),
    "first_hour": usd(23_920_000_000),
    "candidates": [
        CANDIDATES[0] | {"power": ["reboot", "stop", "start"], "price_per_hour_stopped": usd(960_000_000)},
        CANDIDATES[1],
    ],
    "rejected": REJECTED,
}
QUOTE_KEPT = QUOTE | {"id": "qt_019aa1b2c3d47e5f8a9b0c1d2e3f4a5b", "expires_at": at(minutes=-15)}
KEPT_QUOTE: Json = {
    "id": QUOTE_KEPT["id"],
    "sku": "h100x8",
    "project": "default",
    "environment": "default",
    "purchase": "on_demand",
    "regions": ["eu"],
    "providers": [],
    "price_usd_per_hour_max": "30.000000000",
    "network_gbps_min": 400,
    "price_per_gpu_hour": usd(2_990_000_000),
    "price_per_hour": usd(23_920_000_000),
    "price_per_hour_stopped": usd(23_920_000_000),
    "quoted_at": at(minutes=0),
    "expires_at": at(minutes=-15),
    "sla": "bronze",
    "expired": False,
    "leases": 1,
}
QUOTE_REFUSED: Json = QUOTE | {
    "verdict": {
        "admitted": False,
        "code": "quota_exceeded",
        "why": "72 GPUs would be held and the quota is 64; release a lease or ask for a higher quota.",
        "rules": [RULES[0], REFUSING, *RULES[2:]],
    },
    "candidates": [],
}

STATUS_OF_STATE = {
    "placing": (None, 0, "Choosing a machine."),
    "starting": ("booted", 3, "The machine runs; connecting."),
    "ready": ("certificates_accepted", 7, "Ready."),
    "ending": ("certificates_accepted", 7, "No longer billed; the machine is being terminated."),
    "ended": ("certificates_accepted", 7, "Ended; the provider confirmed that no machine is left."),
}


def status(state: str) -> Json:
    step, done, message = STATUS_OF_STATE[state]
    return {"state": state, "step": step, "steps_done": done, "steps_total": 7, "message": message}


MACHINE: Json = {
    "machine_id": MACHINE_ID,
    "provider": "local",
    "region": "eu-north-1",
    "state": "verified",
    "address": "203.0.113.7",
    "ssh_port": 22,
    "ssh_user": "ubuntu",
    "host_key": HOST_KEY,
    "mesh_address": "10.64.0.2",
    "sighted_at": at(seconds=9),
}


def a_lease(state: str = "ready", **changes: Any) -> Json:
    return {
        "id": LEASE_ID,
        "name": "train-1",
        "project": "default",
        "project_id": PROJECT_ID,
        "environment": "default",
        "environment_id": "env_019aa0000000700080000000000000ea",
        "network": "default",
        "network_id": "net_019aa0000000700080000000000000fa",
        "request": {
            "sku": "h100x8",
            "regions": ["eu"],
            "providers": [],
            "price_usd_per_hour_max": "25.000000000",
            "priority": 50,
        },
        "gpu_model": "h100-sxm-80gb",
        "gpu_count": 8,
        "price_per_gpu_hour": usd(2_990_000_000),
        "price_per_hour": usd(23_920_000_000),
        "state": state,
        "status": status(state),
        "machine": None if state == "placing" else MACHINE,
        "proof": lease_proof(state),
        "agent": lease_agent(state),
        "ssh_keys": [
            {"id": key["id"], "name": key["name"], "fingerprint": key["fingerprint"]}
            for key in SSH_KEYS["items"]
        ],
        "labels": {"team": "vision", "run": "7"},
        "wait_timeout_seconds": 1_800,
        "auto_release": {"after_seconds": 43_200, "spend": usd(200_000_000_000)},
        "attempts": 0 if state == "placing" else 2,
        "end_reason": None,
        "end_why": None,
        "created_at": at(hours=3, minutes=20),
        "ready_at": at(hours=3, minutes=16, seconds=12) if state in ("ready", "ending", "ended") else None,
        "release_at": at(hours=-5) if state in ("ready", "ending", "ended") else None,
        "billed_until": at(minutes=4) if state in ("ending", "ended") else None,
        "ended_at": at(minutes=1) if state == "ended" else None,
    } | changes


def a_power(state: str = "on", why: str | None = None) -> Json:
    """The power of a machine that its provider can switch, four minutes after something was asked for."""
    return {
        "state": state,
        "since": at(minutes=4),
        "why": why,
        "actions": ["reboot", "start", "stop"],
        "price_per_hour_stopped": usd(960_000_000),
    }


PROOF_ID = "pf_019aa1b2c3e07e5f8a9b0c1d2e3f4a5d"


def lease_agent(state: str) -> Json | None:
    if state in ("placing", "starting"):
        return None
    results = [
        {
            "task": "topology", "at": at(minutes=40), "done": True,
            "detail": "8 GPUs, driver 570.124.06, nvml", "digest": "ab" * 32,
        },
        {
            "task": "report", "at": at(minutes=3), "done": False,
            "detail": "driver_timeout: the driver did not answer", "digest": None,
        },
    ]  # fmt: skip
    standing = {"ready": "reporting"}.get(state, "ended")
    return {"state": standing, "reported_at": at(seconds=42), "results": results}


def lease_proof(state: str) -> Json:
    if state in ("placing", "starting"):
        return {"demanded": "proven", "tier": "listed", "id": None, "outcome": None, "at": None}
    latest = {"id": PROOF_ID, "outcome": "passed", "at": at(hours=1, minutes=2)}
    return {"demanded": "proven", "tier": "proven"} | latest


COMMITTED: Json = a_lease(
    request=a_lease()["request"] | {"purchase": "committed", "committed_days": 365},
    auto_release=None, committed_until="2027-11-20T12:03:49Z",
    release_at="2027-11-20T12:03:49Z", release_fee=usd(174_499_200_000_001), unused=usd(0),
)  # fmt: skip
COMMITTED_AND_RELEASED: Json = a_lease("ended") | {
    "request": COMMITTED["request"], "committed_until": COMMITTED["committed_until"],
    "auto_release": COMMITTED["auto_release"], "release_fee": usd(0), "unused": usd(174_499_200_000_000),
}  # fmt: skip
WAITING: Json = a_lease(
    "placing",
    status=status("placing")
    | {
        "message": "Waiting for stock: None of 3 offers can serve it now: 1 in other regions, 2 sold out.",
        "waiting": {
            "since": at(minutes=5),
            "gives_up_at": at(minutes=-25),
            "why": "None of 3 offers can serve it now: 1 in other regions, 2 sold out.",
        },
    },
)
UNCONFIRMED: Json = a_lease(
    status=status("ready")
    | {
        "message": "Ready, but unconfirmed: the provider has not listed the machine lately.",
        "unconfirmed": {"since": at(minutes=7), "why": "the provider has not listed the machine lately."},
    },
)


def a_finding(code: str, gpu: int | None, why: str) -> Json:
    return {"code": code, "gpu": gpu, "why": why}


def a_rate(gpu: int, phase: str, seconds: float, per_second: float, most: float | None) -> Json:
    return {
        "gpu": gpu, "phase": phase, "seconds": seconds, "per_second": per_second,
        "least_seconds": None if most is None else seconds / 2, "most_seconds": most,
    }  # fmt: skip


def a_proof(outcome: str, **changes: Any) -> Json:
    """Two GPUs; the second one is slow where it failed."""
    failed = outcome == "failed"
    walk = [a_rate(0, "walk", 0.52, 2.1e12, 0.71), a_rate(1, "walk", 1.9 if failed else 0.53, 5.7e11 if failed else 2.0e12, 0.71)]  # fmt: skip
    tiles = [a_rate(gpu, kind, 0.4, pace, 0.62) for kind, pace in (("int8", 7.2e14), ("bf16", 3.9e14)) for gpu in (0, 1)]  # fmt: skip
    fill = [a_rate(gpu, "fill", 9.4, 1.1e12, None) for gpu in (0, 1)]
    why = "1.900 s, and 0.710 s is the limit"
    return {
        "id": PROOF_ID,
        "lease_id": LEASE_ID,
        "machine_id": MACHINE_ID,
        "at": at(hours=1, minutes=2),
        "occasion": "idle",
        "outcome": outcome,
        "code": "walk_too_slow" if failed else None,
        "why": why if failed else None,
        "gpu_model": "h100-sxm-80gb",
        "source": "cuda",
        "driver": "570.124.06",
        "reference": "estimated of 2026-11",
        "attested": not failed,
        "gpus": [
            {"uuid": f"GPU-5f1c2a7e-0000-4000-8000-00000000000{n}", "proven_bytes": None if failed else 79_456_894_976, "sold_bytes": 85_520_809_984}
            for n in range(2)
        ],
        "findings": [a_finding("walk_too_slow", 1, why)] if failed else [],
        "hints": [a_finding("gaps", 0, "its clock jumped on 12 of 132 multiprocessors")],
        "rates": [*fill, *walk, *tiles],
        "seconds": 31.4,
    } | changes  # fmt: skip


UNANSWERED = a_proof(
    "unanswered", id="pf_019aa1b2c3e07e5f8a9b0c1d2e3f4a00", occasion="recheck", source="", driver="", reference="",
    attested=False, code="line_broken", why="the prover ended with status 137", gpus=[], hints=[], rates=[],
    findings=[a_finding("line_broken", None, "the prover ended with status 137")], at=at(minutes=55), seconds=2.0,
)  # fmt: skip
EMULATED = a_proof(
    "emulated", id="pf_019aa1b2c3e07e5f8a9b0c1d2e3f4a01", occasion="start", source="emulated", reference="",
    attested=False, code=None, why=None, hints=[], rates=[], findings=[],
)  # fmt: skip
PROOFS: Json = {
    "items": [UNANSWERED, a_proof("failed", id="pf_019aa1b2c3e07e5f8a9b0c1d2e3f4a02"), a_proof("passed")],
    "next_cursor": None,
}


def a_record(account: str, offer: str, proof: Json, *, ended: bool) -> Json:
    kept = ("id", "machine_id", "gpu_model", "occasion", "outcome", "code", "why", "at")
    return {name: proof[name] for name in kept} | {"account": account, "offer": offer, "ended": ended}


PROOF_RECORDS: Json = {
    "items": [
        a_record("lambda_cloud/research", "lambda_cloud/research:us-east-1:gpu_8x_h100_sxm5", a_proof("failed"), ended=True),
        a_record("local", "local:local-1:gpu-h100x1", EMULATED, ended=False),
        a_record("lambda_cloud", "lambda_cloud:eu-central-1:gpu_8x_h100_sxm5", a_proof("passed"), ended=False),
    ],
    "next_cursor": None,
}  # fmt: skip


SPOT_REQUEST: Json = {
    "sku": "h100x8",
    "regions": ["eu"],
    "providers": [],
    "price_usd_per_hour_max": "9.000000000",
    "priority": 50,
    "purchase": "spot",
}


def leases() -> list[Json]:
    small: Json = {
        "sku": "h100x1",
        "regions": [],
        "providers": [],
        "price_usd_per_hour_max": None,
        "priority": 80,
    }
    one_gpu = {"gpu_count": 1, "request": small, "price_per_hour": usd(2_490_000_000)}
    return [
        a_lease("placing", id="le_019aa1e0cb107e5f8a9b0c1d2e3f4a01", name="nightly-evaluation-of-everything", created_at=at(seconds=2), **one_gpu),
        a_lease("starting", id="le_019aa1e02b0c7b5f8a9b0c1d2e3f4a02", name="eval-2", created_at=at(seconds=41), **one_gpu),
        a_lease(),
        a_lease("ending", id="le_019a91b2c3d47e5f8a9b0c1d2e3f4a5b", name="notebook", created_at=at(days=4, hours=2), **one_gpu),
        a_lease(
            "ended", id="le_019a81b2c3d47e5f8a9b0c1d2e3f4a5b", name="train-0", created_at=at(days=31),
            end_reason="no_capacity", end_why="no offer could serve it for 30 min",
        ),
    ]  # fmt: skip


def a_line(
    number: int, seconds: float, event: str, before: str | None, after: str | None, **changes: Any
) -> Json:
    created = datetime.fromisoformat(a_lease()["created_at"])
    return {
        "number": number,
        "at": (created + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z"),
        "actor_kind": "loop",
        "actor": "place_leases",
        "request_id": None,
        "event": event,
        "machine_id": None,
        "state_before": before,
        "state_after": after,
        "why": None,
    } | changes


BY_A_CUSTOMER = {
    "actor_kind": "customer",
    "actor": "key_019aa0000000700080000000000000bb",
    "request_id": "req_019aa1b2c3d47e5f8a9b0c1d2e3f4a00",
}
EXPLANATION: Json = {
    "lease": a_lease(),
    "admission": a_line(
        1, 0, "admitted", None, "placing",
        why="h100x8; 1 of 64 GPUs were held before", **BY_A_CUSTOMER,
    ),
    "placements": [
        {"number": 1, "decided_at": at(hours=3, minutes=19, seconds=59), "chosen": CANDIDATES[0]["key"], "candidates": CANDIDATES, "rejected": REJECTED},
        {
            "number": 2,
            "decided_at": at(hours=3, minutes=18, seconds=8),
            "chosen": None,
            "candidates": [],
            "rejected": [
                *REJECTED,
                a_rejected("local", "eu-north-1", "nspawn.h100x8", "resting", "This lease failed there (never_booted); again in 101 s."),
            ],
        },
        {
            "number": 3,
            "decided_at": at(hours=3, minutes=18, seconds=6),
            "chosen": None,
            "candidates": [],
            "rejected": [
                *REJECTED,
                a_rejected("local", "eu-north-1", "nspawn.h100x8", "resting", "This lease failed there (never_booted); again in 101 s."),
            ],
        },
    ],
    "attempts": [
        {
            "number": 1, "started_at": at(hours=3, minutes=19, seconds=59), "ended_at": at(hours=3, minutes=18, seconds=8), "outcome": "failed",
            "machine_id": EARLIER_MACHINE_ID, "provider": "local", "region": "eu-north-1", "native_type": "nspawn.h100x8",
            "state": "gone", "step": "launched", "asked_at": at(hours=3, minutes=19, seconds=58), "sighted_at": at(hours=3, minutes=18, seconds=30),
            "fail_reason": "never_booted", "fail_why": "it did not run within 90 s",
        },
        {
            "number": 2, "started_at": at(hours=3, minutes=18, seconds=1), "ended_at": at(hours=3, minutes=16, seconds=12), "outcome": "admitted",
            "machine_id": MACHINE_ID, "provider": "lambda_cloud", "region": "eu-central-1", "native_type": "gpu_8x_h100_sxm5",
            "state": "verified", "step": "certificates_accepted", "asked_at": at(hours=3, minutes=18), "sighted_at": at(seconds=9),
            "fail_reason": None, "fail_why": None,
        },
    ],
    "journal": [
        a_line(1, 0, "admitted", None, "placing", why="h100x8; 1 of 64 GPUs were held before", **BY_A_CUSTOMER),
        a_line(2, 1, "placed", "placing", "starting"),
        a_line(3, 1.2, "asked", "intended", "launching", actor="launch_machines", machine_id=EARLIER_MACHINE_ID),
        a_line(4, 112, "attempt_failed", "starting", "placing", actor="observe_machines", why="it did not run within 90 s"),
        a_line(9, 228, "verified", "starting", "ready", actor="admit_customers"),
    ],
    "reports": [
        {
            "id": "rep_1",
            "machine_id": MACHINE_ID,
            "at": at(hours=3, minutes=16, seconds=13),
            "verdict": "verified",
            "why": None,
            "source": "nvml",
            "gpus": [
                {"name": "NVIDIA H100 80GB HBM3", "uuid": f"GPU-5f1c2a7e-0000-4000-8000-00000000000{number}", "memory_mib": 81_559}
                for number in range(2)
            ],
        },
        {
            "id": "rep_0",
            "machine_id": EARLIER_MACHINE_ID,
            "at": at(hours=3, minutes=18, seconds=40),
            "verdict": "mismatch",
            "why": "1 GPU shows; 8 were sold",
            "source": "emulated",
            "gpus": [],
        },
    ],
    "proofs": [a_proof("passed"), a_proof("failed", machine_id=EARLIER_MACHINE_ID)],
}  # fmt: skip

USAGE_ROWS = [
    {
        "id": f"ch_019aa{number:027d}",
        "lease_id": LEASE_ID,
        "lease_name": "train-1",
        "interval": number,
        "sku": "h100x8",
        "started_at": start,
        "ended_at": end,
        "unit": "gpu",
        "unit_seconds": seconds * 8,
        "price_per_unit_hour": usd(2_990_000_000),
        "amount": usd(amount),
        "project": "default",
        "project_id": PROJECT_ID,
        "machine_id": MACHINE_ID,
        "provider": "lambda_cloud",
        "region": "eu-central-1",
        "purchase": "on_demand",
        "price_book": 3,
        "organization_id": ORGANIZATION["id"],
        "gpu_model": "h100-sxm-80gb",
        "gpu_count": 8,
        "currency": "USD",
    }
    for number, start, end, seconds, amount in (
        (1, "2026-11-20T12:03:49Z", "2026-11-20T13:00:00Z", 3_371, 22_398_422_222),
        (2, "2026-11-20T13:00:00Z", "2026-11-20T14:00:00Z", 3_600, 23_920_000_000),
        (3, "2026-11-20T14:00:00Z", "2026-11-20T15:00:00Z", 3_600, 23_920_000_000),
    )
]
USAGE: Json = {"items": USAGE_ROWS, "next_cursor": None}
BILL: Json = {
    "since": "2026-11-01T00:00:00Z",
    "until": "2026-12-01T00:00:00Z",
    "lines": [
        {
            "lease_id": LEASE_ID, "name": "train-1", "project": "default", "project_id": PROJECT_ID,
            "sku": "h100x8", "unit": "gpu", "price_per_unit_hour": usd(2_990_000_000),
            "unit_seconds": 84_568, "amount": usd(70_238_422_222), "unrated_unit_seconds": 9_600, "unrated": usd(7_973_333_333),
        },
        {
            "lease_id": "le_019a91b2c3d47e5f8a9b0c1d2e3f4a5b", "name": "notebook", "project": "default", "project_id": PROJECT_ID,
            "sku": "h100x1", "unit": "gpu", "price_per_unit_hour": usd(2_490_000_000),
            "unit_seconds": 352_800, "amount": usd(244_020_000_000), "unrated_unit_seconds": 0, "unrated": usd(0),
        },
    ],
    "projects": [
        {
            "project": "default", "project_id": PROJECT_ID, "gpu_seconds": 437_368, "machine_seconds": 0, "amount": usd(314_258_422_222),
            "unrated_gpu_seconds": 9_600, "unrated_machine_seconds": 0, "unrated": usd(7_973_333_333),
        },
    ],
    "amount": usd(314_258_422_222),
    "unrated": usd(7_973_333_333),
    "balance": usd(1_250_417_800_000),
    "held": usd(26_410_000_000),
    "available": usd(1_224_007_800_000),
}  # fmt: skip
BALANCE_WARNING = (
    "The balance is 412.20 USD, below 1,000.00 USD, and pays for 15 h at 26.41 USD per hour; top up."
)
BALANCE_ALERTS: Json = {
    "state": "low", "warning": BALANCE_WARNING, "balance": usd(412_207_800_000), "below": usd(1_000_000_000_000),
    "threshold": usd(1_000_000_000_000), "month_budget": usd(5_000_000_000_000), "budget_percents": [50, 80, 100],
    "month_charged": usd(2_837_792_200_000), "reached_percent": 50,
}  # fmt: skip
BALANCE_ALERTS_OF_NOBODY: Json = BALANCE_ALERTS | {
    "state": "funded", "warning": None, "below": None, "threshold": usd(0), "month_budget": None, "reached_percent": 0,
}  # fmt: skip
BALANCE_EVENTS: Json = {
    "items": [
        {
            "number": 12, "at": "2026-11-21T08:00:00Z", "event": "fell_low", "state_before": "funded", "state_after": "low",
            "why": BALANCE_WARNING, "balance": usd(412_207_800_000), "held": usd(26_410_000_000), "limit": usd(1_000_000_000_000),
        },
        {
            "number": 7, "at": "2026-11-18T20:00:00Z", "event": "budget_reached", "state_before": "funded",
            "state_after": "funded", "balance": usd(750_000_000_000), "held": usd(26_410_000_000), "limit": usd(2_500_000_000_000),
            "why": "2,500.71 USD were charged for November 2026: 50 % of the budget of 5,000.00 USD are reached.",
        },
    ],
    "next_cursor": None,
}  # fmt: skip
BILL_OF_PROJECTS: Json = BILL | {
    "lines": [BILL["lines"][0], BILL["lines"][1] | {"project": "research", "project_id": f"prj_{'1' * 32}"}],
    "projects": [
        {
            "project": "default", "project_id": PROJECT_ID, "gpu_seconds": 84_568, "machine_seconds": 0, "amount": usd(70_238_422_222),
            "unrated_gpu_seconds": 9_600, "unrated_machine_seconds": 0, "unrated": usd(7_973_333_333),
        },
        {
            "project": "research", "project_id": f"prj_{'1' * 32}", "gpu_seconds": 352_800, "machine_seconds": 0,
            "amount": usd(244_020_000_000), "unrated_gpu_seconds": 0, "unrated_machine_seconds": 0, "unrated": usd(0),
        },
    ],
}  # fmt: skip


BILL_WITH_CPUS: Json = BILL | {
    "lines": [
        *BILL["lines"],
        {
            "lease_id": "le_019a91b2c3d47e5f8a9b0c1d2e3f4a5c", "name": "loader-1", "project": "default", "project_id": PROJECT_ID,
            "sku": "cpu.16x", "unit": "machine", "price_per_unit_hour": usd(640_000_000),
            "unit_seconds": 43_200, "amount": usd(7_680_000_000), "unrated_unit_seconds": 1_800, "unrated": usd(320_000_000),
        },
        {
            "lease_id": "le_019a91b2c3d47e5f8a9b0c1d2e3f4a5c", "name": "loader-1", "project": "default", "project_id": PROJECT_ID,
            "sku": "cpu.16x", "unit": "machine", "price_per_unit_hour": usd(50_000_000), "stopped": True,
            "unit_seconds": 36_000, "amount": usd(500_000_000), "unrated_unit_seconds": 0, "unrated": usd(0),
        },
    ],
    "amount": usd(322_438_422_222),
    "unrated": usd(8_293_333_333),
}  # fmt: skip
"""With a machine that has no GPUs, and was stopped for a while."""
BILL_OF_A_TERM: Json = BILL | {
    "lines": [
        *BILL["lines"],
        BILL["lines"][0] | {
            "unused": True, "unit_seconds": 252_203_432, "amount": usd(209_468_961_577_778), "unrated_unit_seconds": 0,
            "unrated": usd(0),
        },
    ],
    "amount": usd(209_783_220_000_000),
}  # fmt: skip
USAGE_OF_A_TERM: Json = USAGE | {
    "items": [
        *USAGE_ROWS,
        USAGE_ROWS[-1] | {
            "unused": True, "interval": 4, "started_at": "2026-11-20T15:00:00Z", "unit_seconds": 252_203_432,
            "amount": usd(209_468_961_577_778),
        },
    ],
}  # fmt: skip

USAGE_SUMS: Json = {
    "by": "label", "label_key": "team", "since": "2026-10-01T00:00:00Z", "until": "2026-11-01T00:00:00Z",
    "groups": [
        {"id": None, "name": name, "charges": 3, "gpu_seconds": 36_000, "machine_seconds": 0, "amount": usd(33_333_333_333),
         "unused": usd(0)}
        for name in ("vision", "speech", None)
    ],
    "gpu_seconds": 108_000, "machine_seconds": 0, "amount": usd(99_999_999_999), "unused": usd(0),
}  # fmt: skip
USAGE_SUMS_WITH_CPUS: Json = USAGE_SUMS | {
    "by": "sku", "label_key": None, "machine_seconds": 43_200, "gpu_seconds": 36_000, "amount": usd(41_013_333_333),
    "groups": [
        USAGE_SUMS["groups"][0] | {"name": "h100x1"},
        USAGE_SUMS["groups"][0] | {"name": "cpu.16x", "gpu_seconds": 0, "machine_seconds": 43_200, "amount": usd(7_680_000_000)},
    ],
}  # fmt: skip


def _usage_of(organization: Json, sums: Json) -> Json:
    return {"organization_id": organization["id"], "organization": organization["name"], "usage": sums}


USAGE_SUMS_OF_A_TERM: Json = USAGE_SUMS_WITH_CPUS | {
    "amount": usd(841_013_333_333), "unused": usd(800_000_000_000),
    "groups": [
        USAGE_SUMS_WITH_CPUS["groups"][0] | {"amount": usd(833_333_333_333), "unused": usd(800_000_000_000)},
        USAGE_SUMS_WITH_CPUS["groups"][1],
    ],
}  # fmt: skip
_NOTHING_USED: Json = {"groups": [], "gpu_seconds": 0, "machine_seconds": 0, "amount": usd(0)}
USAGE_OF_ALL: Json = {
    "items": [
        _usage_of(ORGANIZATION, USAGE_SUMS_OF_A_TERM),
        _usage_of(OTHER_ORGANIZATION, USAGE_SUMS_WITH_CPUS | {"groups": USAGE_SUMS_WITH_CPUS["groups"][:1],
                                                              "machine_seconds": 0, "amount": usd(33_333_333_333)}),
        _usage_of(OTHER_ORGANIZATION, USAGE_SUMS_WITH_CPUS | _NOTHING_USED),
    ],
    "next_cursor": None,
}  # fmt: skip


def _together(customer: Json) -> Json:
    """The usage of a customer by organization: all of it is one group, if there is any."""
    sums = customer["usage"]
    of_all = {key: sums[key] for key in ("gpu_seconds", "machine_seconds", "amount", "unused")}
    group = {"id": customer["organization_id"], "name": customer["organization"], "charges": 6, **of_all}
    return customer | {"usage": sums | {"by": "organization", "groups": [group] if sums["groups"] else []}}


USAGE_OF_ORGANIZATIONS: Json = USAGE_OF_ALL | {"items": [_together(each) for each in USAGE_OF_ALL["items"]]}
USAGE_OF_ALL_BY_LABEL: Json = {
    "items": [_usage_of(ORGANIZATION, USAGE_SUMS), _usage_of(OTHER_ORGANIZATION, USAGE_SUMS)],
    "next_cursor": None,
}
USAGE_OF_PROJECTS: Json = {
    "items": [
        _usage_of(OTHER_ORGANIZATION, USAGE_SUMS | {
            "by": "project", "label_key": None, "gpu_seconds": 36_000, "amount": usd(33_333_333_333),
            "groups": [USAGE_SUMS["groups"][0] | {"id": f"prj_{'9' * 32}", "name": "research"}]}),
    ],
    "next_cursor": None,
}  # fmt: skip
BALANCE: Json = {
    "balance": usd(1_250_417_800_000), "held": usd(26_410_000_000), "available": usd(1_224_007_800_000), "due": usd(19_004_900_000),
    "running_leases": 2, "running_per_hour": usd(26_410_000_000), "available_lasts_seconds": 166_847,
}  # fmt: skip


def a_balance_entry(number: int, kind: str, amount: int, balance: int, **changes: Any) -> Json:
    return {
        "id": f"tx_{number:032x}",
        "number": number,
        "kind": kind,
        "effective_at": at(hours=20 - number),
        "recorded_at": at(hours=20 - number),
        "period": "2026-11",
        "amount": usd(amount),
        "balance": usd(balance),
        "due_change": usd(0),
        "due": usd(0),
        "reason": None,
        "charge_id": None,
        "lease_id": None,
        "lease_name": None,
        "project_id": None,
        "project": None,
        "started_at": None,
        "ended_at": None,
        "invoice_id": None,
        "invoice_number": None,
    } | changes


BALANCE_ENTRIES: Json = {
    "items": [
        a_balance_entry(5, "payment", 0, 1_026_078_111_111, due_change=usd(-19_000_000_000), reason="SEPA 000901"),
        a_balance_entry(4, "invoice", 1_111_111, 1_026_078_111_111, due_change=usd(19_000_000_000),
                        due=usd(19_000_000_000), invoice_id=f"inv_{'9' * 32}", invoice_number="INV-2026-000001"),
        a_balance_entry(3, "credit", 50_000_000_000, 1_026_077_000_000, reason="ticket 4711"),
        a_balance_entry(2, "usage", -23_923_000_000, 976_077_000_000, charge_id=f"ch_{'8' * 32}", lease_id=LEASE_ID,
                        lease_name="train-1", project_id=PROJECT_ID, project="default", started_at=at(hours=18),
                        ended_at=at(hours=17)),
        a_balance_entry(2, "usage", -800_000_000, 976_077_000_000, charge_id=f"ch_{'9' * 32}", lease_id=LEASE_ID,
                        lease_name="train-1", project_id=PROJECT_ID, project="default", started_at=at(hours=18),
                        ended_at=at(hours=18), unused=True),
        a_balance_entry(1, "top_up", 1_000_000_000_000, 1_000_000_000_000, reason="SEPA 2026-11-23 000815"),
    ],
    "next_cursor": None,
}  # fmt: skip


def a_loop(name: str, account: str = "", **changes: Any) -> Json:
    return {
        "loop": name,
        "wing": "machines",
        "account": account,
        "replica": "reconciler-7f9c-2",
        "started_at": at(seconds=3),
        "finished_at": at(seconds=3),
        "every_seconds": 1,
        "looked_at": 0,
        "acted_on": 0,
        "errors": [],
        "notes": [],
        "activations": 31_337,
        "age_seconds": 1,
        "late_after_seconds": 60,
        "late": False,
        "stopped": False,
    } | changes


LOOPS: Json = {
    "items": [
        a_loop("bootstrap_machines", looked_at=2, acted_on=1),
        a_loop(
            "collect_orphans", "lambda_cloud", every_seconds=60, age_seconds=22, looked_at=3,
            notes=["1 machine waits out its grace of 600 s"],
        ),
        a_loop(
            "observe_machines", "lambda_cloud/research", every_seconds=10, age_seconds=4, looked_at=118,
            errors=["lambda_cloud/research: the provider answered 503 Service Unavailable three times; its list is not complete"],
        ),
        a_loop("rate_usage", wing="money", every_seconds=60, age_seconds=4_210, late=True, looked_at=40, acted_on=40),
    ],
    "missing": [{"wing": "money", "loop": "fund_leases", "account": ""}],
}  # fmt: skip
LOOPS_OF_TWO: Json = {
    "items": [
        a_loop("bootstrap_machines", "lambda_cloud", replica="one", looked_at=2, acted_on=1),
        a_loop("bootstrap_machines", "lambda_cloud", replica="two", age_seconds=600, stopped=True),
    ],
    "missing": [{"wing": "machines", "loop": "bootstrap_machines", "account": "nebius"}],
}
ORPHANS: Json = {
    "items": [
        {
            "account": "lambda_cloud", "provider_ref": "0920582c7ff041399e34823a0be62549",
            "launch_key": "sp-5a17c0de-019aa1b2c0007e5f8a9b0c1d2e3f4a00", "native_status": "active",
            "first_seen_at": at(minutes=12), "last_seen_at": at(seconds=20), "lists_seen": 12,
            "terminate_asked_at": at(minutes=2), "note": "asked to end; the provider answered terminating",
            "gone_at": None, "origin": "late_success",
            "origin_why": "The provider refused the order, and launched the machine all the same.",
            "cost_per_hour": {"usd": "2.490000000", "nano": 2_490_000_000},
            "cost": {"usd": "0.498000000", "nano": 498_000_000},
            "not_adopted_why": "Its record is closed, and stays so: the provider refused the launch.",
        },
        {
            "account": "lambda_cloud", "provider_ref": "1f20582c7ff041399e34823a0be62550",
            "launch_key": "sp-5a17c0de-019aa1b2c0007e5f8a9b0c1d2e3f4a01", "native_status": "booting",
            "first_seen_at": at(seconds=20), "last_seen_at": at(seconds=20), "lists_seen": 1,
            "terminate_asked_at": None, "note": None, "gone_at": None, "origin": "unrecorded",
            "origin_why": "No record of ours has its launch key: our records were lost, or another tool copied the name.",
            "cost_per_hour": None, "cost": None, "not_adopted_why": "No record has its launch key.",
        },
    ]
}  # fmt: skip

ORPHAN_DECISION: Json = {
    "account": "lambda_cloud", "provider_ref": "0920582c7ff041399e34823a0be62549",
    "launch_key": "sp-5a17c0de-019aa1b2c0007e5f8a9b0c1d2e3f4a00", "choice": "end",
    "why": "ticket 4711", "actor": "key_019aa1b2c0007e5f8a9b0c1d2e3f4aaa", "at": at(seconds=30),
}  # fmt: skip
TOO_MANY: Json = {
    "held_code": "too_many",
    "held_why": "60 of 61 machines look like orphans; it is more likely that our records were lost.",
}
ORPHANS_HELD: Json = {
    "items": [
        ORPHANS["items"][0] | TOO_MANY | {"terminate_asked_at": None, "note": None},
        ORPHANS["items"][0]
        | {"provider_ref": "3f20582c7ff041399e34823a0be62552", "decision": ORPHAN_DECISION},
        ORPHANS["items"][1]
        | {"held_code": "watched", "held_why": "It is watched until two lists have shown it."},
        ORPHANS["items"][0] | TOO_MANY | {"account": "local"},
    ]
}

ORPHANS_ALL: Json = {
    "items": [
        ORPHANS["items"][1],
        ORPHANS["items"][0] | {"gone_at": at(minutes=1)},
        ORPHANS["items"][1] | {"provider_ref": "2f20582c7ff041399e34823a0be62551", "gone_at": at(minutes=1)},
    ]
}


def an_account(name: str, **changes: Any) -> Json:
    return {
        "name": name,
        "provider": name.split("/", maxsplit=1)[0],
        "listing_asked_at": at(seconds=8),
        "listing_size": 41,
        "frozen_since": None,
        "frozen_why": None,
        "failing_since": None,
        "failing_why": None,
        "termination_permit": None,
        "drained_since": None,
        "drained_why": None,
        "armed_since": at(minutes=200),
        "credentials_from": "environment",
        "credentials_since": None,
        "limits": [],
    } | changes


def a_limit(bucket: str, calls: int, seconds: float, **changes: Any) -> Json:
    return {
        "bucket": bucket,
        "calls": calls,
        "seconds": seconds,
        "burst": None,
        "share_percent": 100,
        "turns_last_minute": 0,
        "next_turn_at": at(),
    } | changes


PERMIT: Json = {
    "account": "lambda_cloud",
    "why": "ticket 4711: they sold MIG slices",
    "actor": "key_019aa1b2c3d47e5f8a9b0c1d2e3f4a5b",
    "at": at(minutes=7),
    "until": at(minutes=-53),
}


BLOCKS: list[Json] = [
    {
        "scope": "region",
        "subject": "everything in eu-central-1",
        "reason": "quota_reached",
        "machine_id": "mc_019aa1b2c3d47e5f8a9b0c1d2e3f4a5b",
        "since": at(seconds=30),
        "until": at(seconds=-270),
    },
    {
        "scope": "offer",
        "subject": "h100-sxm-80gb.1 in us-east-1",
        "reason": "no_capacity",
        "machine_id": "mc_019aa1b2c3d47e5f8a9b0c1d2e3f4a5c",
        "since": at(seconds=170),
        "until": at(seconds=-10),
    },
]
ACCOUNTS: Json = {
    "items": [
        an_account(
            "hyperstack", listing_asked_at=None, listing_size=0, armed_since=None,
            limits=[a_limit("requests", 500, 60.0, turns_last_minute=438)],
        ),
        an_account(
            "lambda_cloud", termination_permit=PERMIT,
            limits=[
                a_limit("all", 1, 1.0, turns_last_minute=31),
                a_limit("launch", 1, 12.0, share_percent=70, turns_last_minute=4, next_turn_at=at(seconds=-17)),
            ],
            offers_left_out=["unknown GPU: H100 (94 GB SXM5)", "no price: gpu_8x (2 times)"],
        ),
        an_account(
            "lambda_cloud/research", listing_size=3, frozen_since=at(minutes=7),
            frozen_why=(
                "The list misses 115 of 118 machines that should be on it. 98 of them reported in the last five minutes."
            ),
            frozen_missing=115, frozen_needs_permit=True,
        ),
        an_account(
            "lambda_cloud/small", listing_size=0, frozen_since=at(minutes=4),
            frozen_why="The list is empty and 2 machines should be on it.", frozen_missing=2,
        ),
        an_account(
            "lambda_cloud/spare", drained_since=at(minutes=9), drained_why="ticket 4711",
            credentials_from="operator", credentials_since=at(minutes=90),
        ),
        an_account("local", blocks=BLOCKS, failing_since=at(seconds=95), failing_why="ProviderUnavailable: connection refused"),
    ]
}  # fmt: skip


MISSING_PERMIT: Json = PERMIT | {
    "account": "lambda_cloud/research",
    "why": "ticket 4712: they lost a hall",
    "missing": {"frozen_since": at(minutes=7), "machines": 115},
}


def a_fleet_machine(number: int, **changes: Any) -> Json:
    return {
        "id": f"mc_019aa1b2c0{number:02d}7e5f8a9b0c1d2e3f4a5b",
        "account": "lambda_cloud/research",
        "provider": "lambda_cloud",
        "provider_ref": f"{number}920582c7ff041399e34823a0be62549",
        "native_status": "active",
        "region": "us-east-1",
        "gpu_model": "h100-sxm-80gb",
        "gpu_count": 8,
        "state": "verified",
        "verdict": "healthy",
        "silent": False,
        "stopped": False,
        "organization_id": "org_019aa1b2c3d47e5f8a9b0c1d2e3f4a5b",
        "organization": "acme",
        "project_id": "prj_019aa1b2c3d47e5f8a9b0c1d2e3f4a5b",
        "project": "vision",
        "lease_id": LEASE_ID,
        "lease": "train-1",
        "created_at": at(minutes=90 * number),
        "cost_per_hour": {"usd": "19.920000000", "nano": 19_920_000_000},
        "cost": usd(29_880_000_000 * number),
    } | changes


NOBODYS: Json = dict.fromkeys(
    ("organization_id", "organization", "project_id", "project", "lease_id", "lease")
)
FLEET: Json = {
    "items": [
        a_fleet_machine(1, verdict=None, state="booting", **NOBODYS),
        a_fleet_machine(2),
        a_fleet_machine(
            3, verdict="lost", silent=True, account="nebius", provider="nebius", region="eu-north-1"
        ),
        a_fleet_machine(4, verdict=None, state="terminating", provider_ref=None, **NOBODYS),
    ],
    "next_cursor": None,
}


def _counted(machines: int) -> Json:
    return {"machines": machines, "gpus": 8 * machines}


def _a_total(provider: str | None, *counts: int) -> Json:
    words = ("all", "delivered", "healthy", "reserved", "active")
    return {
        "provider": provider,
        "gpu_model": None if provider is None else "h100-sxm-80gb",
        **{word: _counted(count) for word, count in zip(words, counts, strict=True)},
        "cost_per_hour": usd(19_920_000_000 * counts[0]),
    }


FLEET_TOTALS: Json = {
    "total": _a_total(None, 1_204, 1_190, 1_187, 1_192, 1_180),
    "lines": [
        _a_total("lambda_cloud", 1_000, 990, 990, 992, 981),
        _a_total("nebius", 204, 200, 197, 200, 199),
    ],
}
NO_MACHINES: Json = {"total": _a_total(None, 0, 0, 0, 0, 0), "lines": []}
LIABILITY_IDS = tuple(f"li_{digit * 3}aa1b2c3d47e5f8a9b0c1d2e3f4a5b" for digit in "789")
LIABILITIES: Json = {
    "items": [
        {
            "id": LIABILITY_IDS[0], "kind": "machine", "account": "lambda_cloud/research", "provider_ref": "0920582c7ff041399e34823a0be62549",
            "machine_id": "mc_019aa1b2c0047e5f8a9b0c1d2e3f4a5b", "since": at(minutes=180),
            "cost_per_hour": {"usd": "19.920000000", "nano": 19_920_000_000},
            "cost": {"usd": "59.760000000", "nano": 59_760_000_000}, "terminate_asked_at": at(minutes=178),
            "next_try_at": at(seconds=-90), "tries": 37,
            "why": "The provider took the request to terminate it, and has not shown its end yet.",
        },
        {
            "id": LIABILITY_IDS[1], "kind": "orphan", "account": "nebius", "provider_ref": "computeinstance-e00abc", "machine_id": None,
            "since": at(minutes=12), "cost_per_hour": None, "cost": None, "terminate_asked_at": None,
            "next_try_at": None, "tries": 0, "why": "The account is not armed: it only shows what would be terminated.",
        },
        {
            "id": LIABILITY_IDS[2], "kind": "child", "account": "verda", "provider_ref": "6fe2a9c1-0000-4000-8000-000000000007",
            "child_kind": "volume", "machine_id": "mc_019aa1b2c0047e5f8a9b0c1d2e3f4a5c", "since": at(minutes=60),
            "cost_per_hour": {"usd": "0.010000000", "nano": 10_000_000},
            "cost": {"usd": "0.010000000", "nano": 10_000_000}, "terminate_asked_at": None, "next_try_at": None,
            "tries": 3,
            "why": "Its deletion is requested every minute: its machine is gone. The last try failed: it is in use.",
        },
    ],
    "count": 3,
    "unpriced": 1,
    "cost_per_hour": {"usd": "19.930000000", "nano": 19_930_000_000},
    "cost": {"usd": "59.770000000", "nano": 59_770_000_000},
    "next_cursor": None,
}  # fmt: skip
NO_LIABILITIES: Json = LIABILITIES | {
    "items": [],
    "count": 0,
    "unpriced": 0,
    "cost_per_hour": usd(0),
    "cost": usd(0),
}


def an_account_request(verb: str, **changes: Any) -> Json:
    return {
        "id": "arq_019aa1b2c3d47e5f8a9b0c1d2e3f4a5b",
        "account": "lambda_cloud",
        "verb": verb,
        "why": "ticket 4711",
        "actor": "key_019aa1b2c3d47e5f8a9b0c1d2e3f4a5b",
        "asked_at": at(seconds=12),
        "outcome": "accepted",
        "code": None,
        "said": "lambda_cloud accepts the credentials and lists 41 machines of ours.",
        "finished_at": at(seconds=10),
    } | changes


REFUSED_CREDENTIALS: Json = {
    "outcome": "refused",
    "code": "credentials_refused",
    "said": "lambda_cloud does not accept these credentials: API key was invalid",
}
ACCOUNT_REQUESTS: Json = {
    "items": [
        an_account_request("drain", outcome=None, said=None, finished_at=None),
        an_account_request("rotate", why=None, **REFUSED_CREDENTIALS),
        an_account_request(
            "add",
            account="local",
            outcome="unreachable",
            code="no_answer",
            said="local gives no answer: Unavailable.",
        ),
        an_account_request("add", why=None, asked_at=at(minutes=90)),
    ]
}


def of_two_projects(page: Json, rows: str) -> Json:
    """The same answer, with the last of its rows in another project than the others."""
    *others, last = page[rows]
    return page | {rows: [*others, last | {"project": "research", "project_id": RESEARCH_ID}]}


def _audit_event(sequence: int, **other: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "id": f"aud_{sequence:032x}",
        "chain": ORGANIZATION["id"],
        "sequence": sequence,
        "at": "2026-11-20T11:59:30Z",
        "event": "leases.create",
        "outcome": "allowed",
        "code": None,
        "subject": "sa_0190c2f07d1e7b3a9c54e1f2a3b4c5d6",
        "subject_kind": "service_account",
        "credential": "key_0190c2f07d1e7b3a9c54e1f2a3b4c5d6",
        "subject_organization": ORGANIZATION["id"],
        "project": None,
        "targets": [LEASE_ID],
        "address": "203.0.113.7",
        "client": "splitplane-cli/0.1.0",
        "region": "eu-west-1",
        "rule": "role:customer",
        "request_id": "req_0190c2f07d1e7b3a9c54e1f2a3b4c5d6",
        "links": {"journal": [17]},
        "details": {"operation": "createLease"},
        "previous": "0" * 64,
        "hash": "1" * 64,
    }
    return given | other


AUDIT_EVENTS: dict[str, Any] = {
    "items": [
        _audit_event(
            4, event="provider_accounts.manage", outcome="refused", code="permission_denied", targets=[]
        ),
        _audit_event(
            3, event="machines.terminate", subject="release_machines", subject_kind="loop", credential=None
        ),
        _audit_event(2, event="leases.create", outcome="refused", code="balance_too_low", targets=[]),
        _audit_event(1),
    ],
    "next_cursor": None,
}


def _usd(dollars: int) -> Json:
    return {"usd": f"{dollars}.000000000", "nano": dollars * 10**9}


def _limits(**stated: object) -> Json:
    names = (
        "gpus",
        "spend_per_hour_max",
        "spend_per_month_max",
        "skus",
        "regions",
        "providers",
        "tiers",
        "purchases",
        "priority_max",
        "batch_size_max",
        "burst",
    )
    return dict.fromkeys((*names, "ends_after_seconds")) | {"gpus_of_model": {}} | stated


ENVELOPE: Json = {
    "level": "organization",
    "project_id": None,
    "environment_id": None,
    "limits": _limits(
        gpus=32,
        gpus_of_model={"h100-sxm-80gb": 16},
        spend_per_hour_max=_usd(100),
        spend_per_month_max=_usd(20_000),
        regions=["eu"],
        priority_max=80,
        batch_size_max=8,
        burst={"over_percent": 50, "seconds": 14_400, "price_percent": 150},
        ends_after_seconds=3_600,
    ),
    "revision": 3,
    "set_at": at(days=3),
    "use": {
        "gpus": 28,
        "gpus_of_model": {"h100-sxm-80gb": 20, "l4-24gb": 8},
        "spend_per_hour": _usd(64),
        "spend_this_month": _usd(4_180),
        "over_since": at(hours=1),
    },
    "within": [{"level": "ceiling", "limits": _limits(gpus=64)}],
}
QUOTA_REQUEST: Json = {
    "id": "qr_0190c2f07d1e7b3a9c54e1f2a3b4c5d6",
    "organization_id": OTHER_ORGANIZATION["id"],
    "state": "pending",
    "level": "ceiling",
    "project_id": None,
    "environment_id": None,
    "limits": _limits(gpus=128),
    "reason": "a larger model",
    "asked_by": "sa_0190c2f07d1e7b3a9c54e1f2a3b4c5d6",
    "asked_at": at(hours=5),
    "expires_at": at(days=-13),
    "decided_by": None,
    "decided_at": None,
    "answer": None,
}
QUOTA_REQUESTS: Json = {"items": [QUOTA_REQUEST], "next_cursor": None}

PERIODS: Json = {
    "items": [
        {"month": "2026-11", "issuer": "main", "state": "open", "changed_at": None, "changed_by": None, "reopening": None,
         "missing": []},
        {"month": "2026-10", "issuer": "main", "state": "closing", "changed_at": at(hours=3), "changed_by": USER,
         "reopening": None, "missing": ["Metered time is not charged yet; intervals: 3."]},
        {"month": "2026-09", "issuer": "main", "state": "closed", "changed_at": at(days=20), "changed_by": USER,
         "reopening": {"at": at(hours=1), "by": USER, "reason": "ticket 4711"}, "missing": []},
    ],
    "next_cursor": None,
}  # fmt: skip
LEDGER_ACCOUNTS: Json = {
    "items": [
        {"kind": "wallet", "normal_side": "credit", "balance": usd(24_900_000_000)},
        {"kind": "receivable", "normal_side": "debit", "balance": usd(0)},
        {"kind": "tax_payable", "normal_side": "credit", "balance": usd(1_900_000_000)},
    ],
    "next_cursor": None,
}  # fmt: skip
LEDGER_ENTRIES: Json = {
    "items": [
        {"transaction_id": f"tx_{number:032x}", "organization_id": OTHER_ORGANIZATION["id"], "organization": "fresh",
         "kind": kind, "effective_at": at(hours=number), "recorded_at": at(hours=number), "period": "2026-11",
         "amount": usd(amount), "approved_by": USER, "reason": reason}
        for number, kind, amount, reason in (
            (1, "refund", -24_900_000_000, "SEPA 000901"), (2, "top_up", 1_000_000_000_000, "SEPA 2026-11-23 000815"),
        )
    ],
    "next_cursor": None,
}  # fmt: skip
WALLETS: Json = {
    "items": [
        {"organization_id": organization["id"], "organization": organization["name"], "balance": usd(33_335_000_000),
         "held": usd(5_000_000_000), "due": usd(19_000_000_000)}
        for organization in (ORGANIZATION, OTHER_ORGANIZATION)
    ],
    "next_cursor": None,
}  # fmt: skip
LEDGER_TRANSACTION: Json = {
    "id": f"tx_{'4' * 32}", "organization_id": OTHER_ORGANIZATION["id"], "kind": "credit",
    "amount": usd(24_900_000_000), "effective_at": at(seconds=1), "period": "2026-11", "approved_by": USER,
    "reason": "ticket 4711",
}  # fmt: skip

_RECONCILED: Json = {
    "id": f"rec_{'5' * 32}", "period": "2026-10", "state": "reconciled", "closed": True, "export_id": f"exp_{'6' * 32}",
    "asked_at": at(minutes=2), "asked_by": USER, "all_customers": True, "customers": 212, "remaining": 0, "examined_at": at(seconds=4),
    "links": [
        {"link": link, "before": usd(41_250_000_000_001), "after": usd(41_250_000_000_001), "difference": usd(0)}
        for link in ("metered", "rated", "charged", "posted")
    ] + [
        {"link": "invoiced", "before": usd(41_000_000_000_001), "after": usd(41_000_000_000_001), "difference": usd(0)},
        {"link": "invoice_posted", "before": usd(48_790_000_000_000), "after": usd(48_790_000_000_000), "difference": usd(0)},
        {"link": "credit_note_posted", "before": usd(0), "after": usd(0), "difference": usd(0)},
        {"link": "exported_to_customer", "before": usd(0), "after": usd(0), "difference": usd(0)},
        {"link": "exported", "before": usd(41_250_000_000_001), "after": usd(41_250_000_000_001), "difference": usd(0)},
        {"link": "supplier_posted", "before": usd(27_001_200_000_000), "after": usd(27_001_200_000_000),
         "difference": usd(0)},
        {"link": "supplier_owed", "before": usd(27_001_200_000_000), "after": usd(27_001_200_000_000),
         "difference": usd(0)},
    ],
    "differing_customers": 0, "not_invoiced": usd(250_000_000_000),
}  # fmt: skip
_POSTED_LESS: Json = {
    "link": "posted", "before": usd(41_250_000_000_001), "after": usd(41_247_500_000_001), "difference": usd(-2_500_000_000),
}  # fmt: skip
RECONCILIATION_ASKED: Json = _RECONCILED | {
    "state": "running", "customers": 0, "remaining": None, "examined_at": None,
    "links": [link | {"before": usd(0), "after": usd(0)} for link in _RECONCILED["links"]],
}  # fmt: skip
RECONCILIATION_DIFFERENT: Json = _RECONCILED | {
    "state": "different", "differing_customers": 1,
    "links": [_POSTED_LESS if link["link"] == "posted" else link for link in _RECONCILED["links"]],
}  # fmt: skip
RECONCILED: Json = _RECONCILED
RECONCILED_DAILY: Json = RECONCILIATION_DIFFERENT | {
    "asked_by": "request_reconciliations",
    "all_customers": False,
}
RECONCILIATIONS: Json = {"items": [RECONCILIATION_DIFFERENT, RECONCILED], "next_cursor": None}
RECONCILED_CUSTOMERS: Json = {
    "items": [
        {"organization_id": ORGANIZATION["id"], "organization": ORGANIZATION["name"], "differs": False,
         "links": [
             {"link": link, "before": usd(amount), "after": usd(amount), "difference": usd(0)}
             for link, amount in {
                 "metered": 41_247_500_000_001, "rated": 41_247_500_000_001, "charged": 41_247_500_000_001,
                 "posted": 41_247_500_000_001, "invoiced": 0, "invoice_posted": 0, "credit_note_posted": 0,
                 "exported_to_customer": 0,
             }.items()
         ]},
        {"organization_id": OTHER_ORGANIZATION["id"], "organization": OTHER_ORGANIZATION["name"], "differs": True,
         "links": [
             {"link": link, "before": usd(2_500_000_000), "after": usd(after), "difference": usd(after - 2_500_000_000)}
             for link, after in {
                 "metered": 2_500_000_000, "rated": 2_500_000_000, "charged": 2_500_000_000, "posted": 0
             }.items()
         ]},
        {"organization_id": f"org_{'4' * 32}", "organization": "idle", "differs": False,
         "links": [{"link": "metered", "before": usd(0), "after": usd(0), "difference": usd(0)}]},
    ],
    "next_cursor": None,
}  # fmt: skip
DIFFERENCES: Json = {
    "items": [
        _POSTED_LESS
        | {"organization_id": OTHER_ORGANIZATION["id"], "organization": "fresh", "before": usd(2_500_000_000),
           "after": usd(0), "examples": [f"ch_{'7' * 32}"]},
    ],
    "next_cursor": None,
}  # fmt: skip


def _margin(revenue: int, cost: int, unsold: int, percent: str | None, idle: int = 0, left: int = 0) -> Json:
    return {"revenue": usd(revenue), "cost": usd(cost), "unsold_cost": usd(unsold), "idle_cost": usd(idle),
            "left_behind_cost": usd(left), "margin": usd(revenue - cost), "margin_percent": percent}  # fmt: skip


def _left_behind(number: int, cost: int, **other: Json | str | None) -> Json:
    return {
        "account": "verda", "kind": "volume", "provider_ref": f"0b1c2d3e-0000-4000-8000-00000000000{number}",
        "cost_per_hour": usd(20_000_000), "first_seen_at": "2026-10-02T08:00:00Z", "last_seen_at": None,
        "since": "2026-10-03T17:20:00Z", "until": None, "cost": usd(cost), "machine_id": None, "lease_id": None,
        "lease": None, "organization_id": None, "organization": None,
    } | other  # fmt: skip


MARGIN: Json = {
    "month": "2026-10", "until": "2026-11-01T00:00:00Z", "by": "provider", "machines": 1_204,
    "total": _margin(41_250_000_000_001, 30_500_000_000_000, 1_120_000_000_000, "26.06", 318_500_000_000,
                     14_300_000_000),
    "uncertain_cost": usd(12_400_000_000),
    "idle": [{"sla": None, "cost": usd(18_250_000_000)}, {"sla": "gold", "cost": usd(300_250_000_000)}],
    "lines": [
        {"key": "verda", "name": "verda",
         "amounts": _margin(39_000_000_000_001, 27_000_000_000_000, 1_000_000_000_000, "30.76", 318_500_000_000,
                            14_300_000_000)},
        {"key": "lambda_cloud", "name": "lambda_cloud",
         "amounts": _margin(2_250_000_000_000, 3_380_000_000_000, 0, "-50.23")},
    ],
    "others": _margin(0, 120_000_000_000, 120_000_000_000, None), "others_count": 1,
    "left_behind": [
        _left_behind(1, 13_573_333_333, machine_id=f"mc_{'9' * 32}", lease_id=f"le_{'8' * 32}", lease="train-7",
                     organization_id=OTHER_ORGANIZATION["id"], organization="fresh"),
        _left_behind(2, 726_666_667),
    ],
    "left_behind_count": 2,
}  # fmt: skip
CREDIT_TERMS: Json = {
    "organization_id": ORGANIZATION["id"], "credit_limit": usd(5_000_000_000_000), "payment_days": 30,
    "reason": "contract 17", "changed_at": at(days=1), "changed_by": USER,
}  # fmt: skip
PRICE_AGREEMENT: Json = {
    "id": f"pa_{'7' * 32}", "organization_id": ORGANIZATION["id"], "sku": "h100x8", "region": None, "purchase": "on_demand",
    "price_per_unit_hour": usd(2_190_000_000), "stopped_price_per_unit_hour": None, "valid_from": at(days=1),
    "valid_until": None, "agreed_at": at(days=1), "agreed_by": USER, "reason": "contract 17",
}  # fmt: skip
PRICE_AGREEMENTS: Json = {
    "items": [
        PRICE_AGREEMENT,
        PRICE_AGREEMENT
        | {
            "id": f"pa_{'6' * 32}",
            "sku": "h100x1",
            "region": "eu",
            "purchase": "spot",
            "valid_until": at(minutes=4),
        },
    ],
    "next_cursor": None,
}
SUPPLIER_INVOICES: Json = {
    "items": [
        {"id": f"sinv_{'8' * 32}", "provider": "verda", "period": "2026-10", "lines": 412, "amount": usd(27_001_200_000_000),
         "sha256": "ab" * 32, "imported_at": at(minutes=4), "imported_by": USER, "state": "posted",
         "decided_at": at(minutes=3), "decided_by": USER, "reason": "matched"},
    ],
    "next_cursor": None,
}  # fmt: skip


def _steps(**amounts: int) -> list[Json]:
    return [{"word": word, "amount": usd(amount)} for word, amount in amounts.items()]


MATCHED: Json = {
    "month": "2026-10", "until": "2026-11-01T00:00:00Z", "matched": True, "providers": ["verda"], "missing_invoices": [],
    "billed": usd(39_000_000_000_001), "used": usd(25_900_000_000_000), "expected": usd(27_000_000_000_000),
    "invoiced": usd(27_001_200_000_000),
    "differences": _steps(before_ready=70_000_000_000, unsold_time=1_000_000_000_000, billed_by_block=30_000_000_000,
                          rounding=1_200_000_000),
    "machines_count": 412, "open_count": 0, "machines": [],
}  # fmt: skip
MATCH_DIFFERENT: Json = MATCHED | {
    "matched": False, "missing_invoices": ["lambda_cloud"], "open_count": 2, "invoiced": usd(27_096_800_000_000),
    "differences": [*MATCHED["differences"], *_steps(price_differs=48_000_000_000, not_on_our_records=47_600_000_000)],
    "machines": [
        {"reference": "a1b2-c3d4", "machine_id": f"mc_{'9' * 32}", "billed": usd(96_000_000_000),
         "used": usd(69_000_000_000), "expected": usd(72_000_000_000), "invoiced": usd(120_000_000_000), "open": True,
         "differences": _steps(before_ready=3_000_000_000, price_differs=48_000_000_000)},
        {"reference": "ffff-0000", "machine_id": None, "billed": usd(0), "used": usd(0), "expected": usd(0),
         "invoiced": usd(47_600_000_000), "open": True, "differences": _steps(not_on_our_records=47_600_000_000)},
    ],
}  # fmt: skip
CHARGE: Json = {
    "charge": {
        "id": f"ch_{'7' * 32}", "lease_id": f"le_{'8' * 32}", "interval": 2, "started_at": "2026-10-20T13:00:00Z", "ended_at": "2026-10-20T14:00:00Z",
        "unit_seconds": 28_800, "stopped": False, "amount": usd(19_920_000_000), "period": "2026-10",
    },
    "rated_at": "2026-10-20T14:00:03Z", "period_closed": True,
    "organization_id": OTHER_ORGANIZATION["id"], "organization": "fresh", "lease_id": f"le_{'8' * 32}",
    "machine_id": f"mc_{'9' * 32}", "sku": "h100-sxm.8x", "purchase": "on_demand",
    "journal": [
        {"number": 41, "at": "2026-10-20T12:10:04Z", "actor_kind": "loop", "actor": "admit_customers", "request_id": None,
         "event": "verified", "machine_id": None, "state_before": "starting", "state_after": "ready", "why": None},
        {"number": 77, "at": "2026-10-20T18:21:00Z", "actor_kind": "user", "actor": USER, "request_id": "req_1",
         "event": "released", "machine_id": None, "state_before": "ready", "state_after": "ending", "why": None},
    ],
    "interval": {
        "started_at": "2026-10-20T13:00:00Z", "ended_at": "2026-10-20T14:00:00Z", "unit_seconds_before": 23_960,
        "unit_seconds": 28_800, "recorded_at": "2026-10-20T14:00:02Z", "cost": usd(19_920_000_000),
    },
    "price": {"per_unit_hour": usd(2_490_000_000), "price_book": 3, "price_book_from": "2026-10-01T00:00:00Z",
              "listed": usd(2_490_000_000), "listed_spot": None},
    "transaction": {
        "id": f"tx_{'4' * 32}", "effective_at": "2026-10-20T13:00:00Z", "recorded_at": "2026-10-20T14:00:03Z",
        "period": "2026-10",
        "postings": [{"account": "wallet", "amount": usd(-19_920_000_000)},
                     {"account": "revenue", "amount": usd(19_920_000_000)}],
    },
}  # fmt: skip
CHARGE_INVOICED: Json = CHARGE | {
    "invoice_line": {"invoice_id": f"inv_{'8' * 32}", "invoice": "INV-2026-000001", "line": 2},
}
CHARGE_NOT_POSTED: Json = CHARGE | {"interval": None, "transaction": None, "period_closed": False}
CHARGE_OF_A_REST: Json = CHARGE_INVOICED | {
    "purchase": "committed",
    "charge": CHARGE["charge"] | {
        "id": f"ch_{'8' * 32}", "interval": 3, "started_at": "2026-10-20T14:00:00Z", "unused": True, "unit_seconds": 252_288_000,
        "amount": usd(174_499_200_000_000),
    },
    "interval": CHARGE["interval"] | {"unit_seconds": 252_288_000, "cost": usd(174_499_200_000_000)},
    "transaction": None,
}  # fmt: skip
LEASE_CHARGES: Json = {"items": [CHARGE["charge"], CHARGE_OF_A_REST["charge"]], "next_cursor": None}

_INVOICE: Json = {
    "id": f"inv_{'8' * 32}", "number": "INV-2026-000001", "state": "issued", "organization_id": OTHER_ORGANIZATION["id"],
    "legal_name": "Heliotrope GmbH", "period": "2026-10", "subtotal": usd(14_341_230_000_000),
    "tax": usd(2_724_830_000_000), "total": usd(17_066_060_000_000), "paid": usd(14_341_230_000_000),
    "due": usd(2_724_830_000_000), "issued_at": at(hours=1), "credited": usd(0),
}  # fmt: skip
_INVOICE_LINE: Json = {
    "number": 1, "kind": "usage", "project_id": f"prj_{'9' * 32}", "project": "research", "sku": "h100x8",
    "purchase": "on_demand", "stopped": False, "unit": "gpu", "price": usd(2_490_000_000), "unit_seconds": 20_736_000,
    "used_in": "2026-10", "lease_id": None, "reason": None, "amount": usd(14_342_400_000_000),
    "exact": usd(14_342_400_000_000), "credited": usd(0),
}  # fmt: skip
_OTHER_LINE: Json = dict.fromkeys(_INVOICE_LINE) | {"credited": usd(0)}
INVOICE: Json = _INVOICE | {
    "issuer": "main", "seller": "Neocloud Ltd", "seller_address": ["1 Quay Street", "Galway"], "seller_tax_id": "IE6388047V",
    "address_lines": ["Salomon-Idler-Str. 12", "86159 Augsburg"], "country": "DE", "tax_id": "DE811907980", "tax_rate": 1900,
    "reverse_charge": False, "usage": usd(14_343_733_333_333), "credits": usd(2_500_000_000),
    "adjustment": usd(-3_333_333), "issued_by": USER,
    "lines": [
        _INVOICE_LINE,
        _INVOICE_LINE | {"number": 2, "purchase": "spot", "price": usd(1_333_333_333), "unit_seconds": 3_600,
                         "used_in": "2026-09", "amount": usd(1_330_000_000), "exact": usd(1_333_333_333)},
        _OTHER_LINE | {"number": 3, "kind": "credit", "project_id": f"prj_{'9' * 32}", "project": "research",
                       "lease_id": f"le_{'9' * 32}", "reason": "train-1 was available for 97.10 % of September",
                       "used_in": "2026-09", "amount": usd(-2_500_000_000), "exact": usd(-2_500_000_000)},
        _OTHER_LINE | {"number": 4, "kind": "adjustment", "amount": usd(0), "exact": usd(-3_333_333)},
    ],
    "credit_notes": [],
}  # fmt: skip
_CREDIT_NOTE: Json = {
    "id": f"cn_{'8' * 32}", "number": "CN-2026-000001", "invoice_id": _INVOICE["id"], "invoice_number": _INVOICE["number"],
    "organization_id": OTHER_ORGANIZATION["id"], "legal_name": "Heliotrope GmbH", "net": usd(14_341_230_000_000),
    "tax": usd(2_724_830_000_000), "total": usd(17_066_060_000_000), "to_balance": usd(14_343_730_000_000),
    "less_due": usd(2_724_830_000_000),
    "reason": "billed by mistake, ticket 4711", "issued_at": at(minutes=5), "issued_by": USER,
}  # fmt: skip
CREDIT_NOTE: Json = _CREDIT_NOTE | {
    "credited": usd(14_343_730_000_000), "credits": usd(2_500_000_000),
    "lines": [{"number": 1, "invoice_line": 1, "amount": usd(14_342_400_000_000)},
              {"number": 2, "invoice_line": 2, "amount": usd(1_330_000_000)}],
}  # fmt: skip
CREDIT_NOTES: Json = {"items": [_CREDIT_NOTE], "next_cursor": None}
INVOICED_CHARGES: Json = {
    "items": [
        {"id": f"ch_{hour}{'7' * 31}", "lease_id": f"le_{'8' * 32}", "interval": 2,
         "started_at": f"2026-09-30T2{hour}:00:00Z", "ended_at": f"2026-09-30T2{hour + 1}:00:00Z",
         "unit_seconds": 1_800, "stopped": False, "amount": usd(amount), "period": "2026-10"}
        for hour, amount in ((1, 666_666_667), (2, 666_666_666))
    ],
    "next_cursor": None,
}  # fmt: skip
INVOICE_VOIDED: Json = INVOICE | {
    "state": "voided", "credited": _CREDIT_NOTE["total"], "due": usd(0), "credit_notes": [_CREDIT_NOTE],
}  # fmt: skip
INVOICES: Json = {"items": [_INVOICE], "next_cursor": None}
INVOICE_DRAFT: Json = INVOICE | {
    "id": None,
    "number": None,
    "state": "draft",
    "issued_at": None,
    "issued_by": None,
}
INVOICE_BATCH: Json = {
    "period": "2026-10", "items": [INVOICE], "next_cursor": None,
    "refused": [{"organization_id": OTHER_ORGANIZATION["id"], "code": "billing_details_missing",
                 "detail": "It has no billing details; set who is invoiced."}],
}  # fmt: skip
BILLING_DETAILS: Json = {
    "organization_id": OTHER_ORGANIZATION["id"], "legal_name": "Fresh SAS", "address_lines": ["1 rue Foch", "75116 Paris"],
    "country": "FR", "tax_id": "FR40303265045", "tax_rate": 0, "reverse_charge": True, "changed_at": at(hours=1),
    "changed_by": USER,
}  # fmt: skip


NOTICES: Json = {
    "items": [
        {
            "lease_id": LEASE_ID,
            "machine_id": MACHINE_ID,
            "at": at(minutes=2),
            "kind": "replacement_planned",
            "message": "The machine will be replaced, and what is on its disk will be gone,"
            " not before 2026-11-20 15:23 UTC.",
            "planned_at": at(minutes=-3),
        },
        {
            "lease_id": LEASE_ID,
            "machine_id": MACHINE_ID,
            "at": at(minutes=3),
            "kind": "fault_found",
            "message": "The machine is quarantined: a GPU does not answer: GPU 3 does not answer.",
            "planned_at": None,
        },
    ],
    "next_cursor": None,
}
ACTION_ID = "ea_019aa1b2c3d57e5f8a9b0c1d2e3f4a5e"
ACTION: Json = {
    "id": ACTION_ID,
    "lease_id": LEASE_ID,
    "machine_id": MACHINE_ID,
    "detector": "kv_cache_growth",
    "action": "stop_admission",
    "armed": True,
    "at": at(minutes=2),
    "expires_at": at(minutes=-13),
    "planned_at": None,
    "basis": "claim",
    "why": "63 % of the KV cache is in use, and 100 % will be in 10 min",
    "evidence": {
        "points": [[at(minutes=3), 9_210], [at(minutes=2, seconds=45), None], [at(minutes=2), 12_350]],
        "samples": 22,
    },
    "rules": "0f1e2d3c4b5a6978",
    "ended_at": None,
    "ended": None,
    "ended_by": None,
    "ended_why": None,
}
_ENDED_ACTION: Json = ACTION | {
    "id": "ea_019aa1b2c3d57e5f8a9b0c1d2e3f4a5d",
    "action": "notify",
    "at": at(minutes=8),
    "ended_at": at(minutes=6),
    "ended": "superseded",
    "ended_by": "enforce_rules",
    "ended_why": "the next action was taken",
}
_PLANNED_ACTION: Json = ACTION | {
    "id": "ea_019aa1b2c3d57e5f8a9b0c1d2e3f4a5c",
    "detector": "idle",
    "action": "shutdown",
    "basis": "consent",
    "armed": False,
    "planned_at": at(minutes=-8),
    "why": "no GPU is used more than 2 %, and no request runs since 2026-11-20 13:20 UTC;"
    " it is to be stopped after 2 h",
}
ACTIONS: Json = {"items": [_PLANNED_ACTION, ACTION, _ENDED_ACTION], "next_cursor": None}
LEASE_ACTIONS: Json = {"idle_stop_seconds": 7_200, "items": [ACTION, _ENDED_ACTION], "next_cursor": None}
NO_LEASE_ACTIONS: Json = {"idle_stop_seconds": None, "items": [], "next_cursor": None}
DETECTOR: Json = {
    "detector": "kv_cache_growth",
    "armed": True,
    "since": at(hours=3),
    "set_by": USER,
    "why": "a week without wrong ones",
    "leases": 2,
}
_QUIET: Json = {"armed": False, "since": None, "set_by": None, "why": None, "leases": 0}
DETECTORS: Json = {
    "items": [
        _QUIET | {"detector": "sla_violation"},
        _QUIET | {"detector": "memory_pressure", "leases": 1},
        DETECTOR,
        _QUIET | {"detector": "throughput_degradation"},
        _QUIET | {"detector": "idle", "since": at(hours=30), "set_by": USER, "why": "wrong readings"},
    ]
}
REPAIRS: Json = {
    "items": [
        {
            "id": "rp_019aa1b2c3d57e5f8a9b0c1d2e3f4a5c",
            "machine_id": MACHINE_ID,
            "fault": "gpu_lost",
            "opened_verdict": "degraded",
            "opened_why": "a GPU does not answer, as the machine itself says: GPU 3 does not answer",
            "verdict": "quarantined",
            "verdict_why": "a GPU does not answer: GPU 3 does not answer",
            "step": "replace",
            "step_at": at(minutes=3),
            "why": "its customer was told that it will be replaced",
            "opened_at": at(minutes=4),
            "notified_at": at(minutes=2),
            "closed_at": None,
            "outcome": None,
        },
        {
            "id": "rp_019aa1b2c0007e5f8a9b0c1d2e3f4a00",
            "machine_id": EARLIER_MACHINE_ID,
            "fault": "hardware_slowdown",
            "opened_verdict": "degraded",
            "opened_why": "the hardware slows a GPU down: GPU 0 is slowed down by heat",
            "verdict": "healthy",
            "verdict_why": "no fault is known",
            "step": "watch",
            "step_at": at(hours=3),
            "why": "it works, and may recover by itself",
            "opened_at": at(hours=3),
            "notified_at": None,
            "closed_at": at(hours=2),
            "outcome": "recovered",
        },
    ],
    "next_cursor": None,
}
REPAIR_ID = REPAIRS["items"][0]["id"]
REPAIR: Json = {
    "repair": REPAIRS["items"][0],
    "provider": "lambda_cloud",
    "account": "lambda_cloud/research",
    "region": "us-east-1",
    "native_type": "gpu_8x_h100_sxm5",
    "provider_ref": "0920582c7ff041399e34823a0be62549",
    "gpu_uuids": ["GPU-b76c6f85-9473-52f2-a106-5c04476ce803"],
    "faults": [],
    "changes": [],
    "done": [],
    "ticket": [
        "Machine 0920582c7ff041399e34823a0be62549 is not healthy (degraded): a GPU does",
        "not answer.",
        "",
        "Provider    lambda_cloud",
        "Instance    0920582c7ff041399e34823a0be62549",
    ],
}
OTHER_LEASE_ID = "le_019aa1b2c3d47e5f8a9b0c1d2e3f4aff"
PREEMPTION_ID = "pe_019aa1b2c3d57e5f8a9b0c1d2e3f4a5c"
PREEMPTIONS: Json = {
    "items": [
        {
            "id": PREEMPTION_ID,
            "lease_id": LEASE_ID,
            "machine_id": MACHINE_ID,
            "for_lease_id": OTHER_LEASE_ID,
            "state": "notified",
            "why": "it has the lowest harm, 3600 GPU-seconds, of the interruptible leases that can yield a machine",
            "harm_gpu_seconds": 3_600,
            "notified_at": at(seconds=30),
            "interrupt_at": at(seconds=-90),
            "interrupted_at": None,
            "ordered_machine_id": None,
            "orders": 0,
            "closed_at": None,
        },
        {
            "id": "pe_019aa1b2c0007e5f8a9b0c1d2e3f4a00",
            "lease_id": LEASE_ID,
            "machine_id": EARLIER_MACHINE_ID,
            "for_lease_id": OTHER_LEASE_ID,
            "state": "served",
            "why": "the lease in need got a machine",
            "harm_gpu_seconds": 7_200,
            "notified_at": at(hours=3),
            "interrupt_at": at(hours=2, minutes=58),
            "interrupted_at": at(hours=2, minutes=58),
            "ordered_machine_id": MACHINE_ID,
            "orders": 1,
            "closed_at": at(hours=2, minutes=50),
        },
    ],
    "next_cursor": None,
}
PREEMPTION_DECISIONS: Json = {
    "items": [
        {
            "at": at(seconds=30),
            "decision": "would_notify",
            "for_lease_id": OTHER_LEASE_ID,
            "lease_id": LEASE_ID,
            "preemption_id": None,
            "why": "preemption is not armed, so this is a dry run",
            "tier": "gold",
            "deadline": at(minutes=-11),
            "waiting_why": "None of 2 offers can serve it now: 2 sold out.",
            "considered": [
                {"lease_id": LEASE_ID, "priority": 50, "harm_gpu_seconds": 3_600, "kept": None, "why": None},
                {
                    "lease_id": "le_019aa1b2c3d47e5f8a9b0c1d2e3f4a00",
                    "priority": 50,
                    "harm_gpu_seconds": 720,
                    "kept": "cools_down",
                    "why": "It was interrupted, and runs again for less than 60 minutes.",
                },
            ],
        },
        {
            "at": at(minutes=4),
            "decision": "held_back",
            "for_lease_id": OTHER_LEASE_ID,
            "lease_id": None,
            "preemption_id": None,
            "why": "no interruptible lease has a machine like the one that is needed",
            "tier": "gold",
            "deadline": at(minutes=-11),
            "waiting_why": "None of 2 offers can serve it now: 2 sold out.",
            "considered": [],
        },
    ],
    "next_cursor": None,
}
PREEMPTION_SWITCH: Json = {
    "armed": True,
    "at": at(seconds=1),
    "switched_by": USER,
    "reason": "looked at a week of dry runs",
}
MAINTENANCE: Json = {
    "machine_id": MACHINE_ID,
    "since": at(seconds=1),
    "taken_by": USER,
    "why": "fan",
    "planned_at": None,
    "ended_at": None,
}
