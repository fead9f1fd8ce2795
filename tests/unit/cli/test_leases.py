"""Lease commands: what is sent, what a word may name, what is asked before anything is lost."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from control_plane.cli import progress
from tests.support.cases import case
from tests.unit.cli import answers
from tests.unit.cli.answers import LEASE_ID, Json, a_lease
from tests.unit.cli.stand import Answer, Stand, Typed

SHOW = f"GET /v1/leases/{LEASE_ID}"
LIVE = {"placing", "starting", "ready", "ending"}


def listing(*leases: Json) -> Answer:
    """Leases by `?state=`, in pages of one, so that every lookup has to page."""

    def answer(request: httpx.Request) -> httpx.Response:
        states = set(request.url.params.get_list("state"))
        fitting = [lease for lease in leases if not states or lease["state"] in states]
        at = int(request.url.params.get("cursor", "0"))
        following = str(at + 1) if at + 1 < len(fitting) else None
        return httpx.Response(200, json={"items": fitting[at : at + 1], "next_cursor": following})

    return answer


def other(digits: str, name: str, state: str = "ready") -> Json:
    return a_lease(state, id=f"le_{digits:0<32}", name=name)


# Naming a lease


@pytest.mark.parametrize("word", ["train-1", "le_019aa1b2c3d4", "019aa1b2", LEASE_ID])
def test_a_lease_is_named_by_its_name_its_id_or_a_beginning(word: str, tmp_path: Path) -> None:
    known = {"GET /v1/leases": listing(other("019bb", "train-2"), a_lease()), SHOW: a_lease()}
    shown = Stand(tmp_path, known).run("lease", "show", word, "--json")
    assert json.loads(shown.out)["id"] == LEASE_ID


def test_what_lives_goes_before_what_ended_under_the_same_name(tmp_path: Path) -> None:
    known = {"GET /v1/leases": listing(other("019bb", "train-1", "ended"), a_lease())}
    shown = Stand(tmp_path, known).run("lease", "show", "train-1", "--json")
    assert json.loads(shown.out)["id"] == LEASE_ID


def test_what_ended_is_found_when_nothing_living_is_called_so(tmp_path: Path) -> None:
    known = {"GET /v1/leases": listing(a_lease("ended"))}
    assert json.loads(Stand(tmp_path, known).run("lease", "show", "train-1", "--json").out)["id"] == LEASE_ID


def test_a_word_that_names_two_leases_is_refused_with_both(tmp_path: Path) -> None:
    known = {"GET /v1/leases": listing(other("019aa1b2ff", "train-1"), a_lease())}
    shown = Stand(tmp_path, known).run("lease", "show", "train-1")
    assert shown.code == 1
    assert "error: ambiguous: 'train-1' matches 2 leases" in shown.err
    assert LEASE_ID in shown.err


@pytest.mark.parametrize("word", ["nothing", "le_0", "019", "mc_019aa1b2c3d4"])
def test_a_word_that_names_nothing_is_refused(word: str, tmp_path: Path) -> None:
    shown = Stand(tmp_path, {"GET /v1/leases": listing(a_lease())}).run("lease", "show", word)
    assert (shown.code, shown.err.startswith("error: lease_not_found:")) == (1, True)


# create


def _created(stand: Stand) -> dict[str, Any]:
    posts = [request for request in stand.requests if request.method == "POST"]
    assert len(posts) == 1
    assert len(posts[0].headers["idempotency-key"]) >= 16
    body: dict[str, Any] = json.loads(posts[0].content)
    return body


def test_a_lease_is_asked_for_with_every_key_unless_some_are_named(tmp_path: Path) -> None:
    known: dict[str, Answer] = {
        "GET /v1/ssh-keys": answers.SSH_KEYS,
        "POST /v1/leases": httpx.Response(202, json=a_lease("placing")),
    }
    stand = Stand(tmp_path, known)
    options = [
        "--region",
        "eu",
        "--region",
        "us-east-1",
        "--provider",
        "local",
        "--max-price",
        "25",
        "--name",
        "train-1",
        "--project",
        "research",
        "--label",
        "team=vision",
        "--label",
        "run=",
        "--wait-timeout",
        "12h",
        "--auto-release-after",
        "90s",
        "--auto-release-spend",
        "99.50",
    ]
    assert stand.run("lease", "create", "h100x8", *options, "--no-wait").code == 0
    assert _created(stand) == {
        "sku": "h100x8",
        "regions": ["eu", "us-east-1"],
        "providers": ["local"],
        "price_usd_per_hour_max": "25",
        "name": "train-1",
        "project": "research",
        "labels": {"team": "vision", "run": ""},
        "wait_timeout_seconds": 43_200,
        "auto_release": {"after_seconds": 90, "spend_usd": "99.50"},
    }
    stand = Stand(tmp_path, known)
    stand.run("lease", "create", "h100x8", "--no-wait")
    assert _created(stand) == {"sku": "h100x8"}, "any key of whoever may log in"
    stand = Stand(tmp_path, known)
    stand.run("lease", "create", "h100x8", "--ssh-key", "laptop", "--detach")
    assert _created(stand) == {"sku": "h100x8", "ssh_key_ids": [answers.SSH_KEYS["items"][0]["id"]]}


def _changed(stand: Stand) -> dict[str, Any]:
    (patch,) = [request for request in stand.requests if request.method == "PATCH"]
    assert patch.headers["Idempotency-Key"]
    found: dict[str, Any] = json.loads(patch.content)
    return {name: value for name, value in found.items() if value is not None}


def test_an_update_sends_what_was_named_and_keeps_the_other_limit(tmp_path: Path) -> None:
    path = f"PATCH /v1/leases/{LEASE_ID}"
    for options, sent in (
        (["--any-region", "--priority", "0"], {"regions": [], "priority": 0}),
        (["--region", "us", "--region", "eu", "--any-provider"], {"regions": ["us", "eu"], "providers": []}),
        (["--sku", "h100x1", "--max-price", "3.5"], {"sku": "h100x1", "price_usd_per_hour_max": "3.5"}),
        (["--wait-timeout", "0"], {"wait_timeout_seconds": 0}),
        (
            ["--auto-release-after", "1h"],
            {"auto_release": {"after_seconds": 3_600, "spend_usd": "200.000000000"}},
        ),
        (["--no-auto-release"], {"auto_release": {}}),
    ):
        stand = Stand(tmp_path, {SHOW: a_lease("placing"), path: a_lease("placing")})
        assert stand.run("lease", "update", LEASE_ID, *options).code == 0, options
        assert _changed(stand) == sent, options


def test_an_extension_adds_to_the_limits_that_the_lease_has(tmp_path: Path) -> None:
    path = f"PATCH /v1/leases/{LEASE_ID}"
    for options, sent in (
        (["--time", "2h"], {"after_seconds": 50_400, "spend_usd": "200.000000000"}),
        (["--spend", "49.5"], {"after_seconds": 43_200, "spend_usd": "249.500000000"}),
    ):
        stand = Stand(tmp_path, {SHOW: a_lease(), path: a_lease()})
        assert stand.run("lease", "extend", LEASE_ID, *options).code == 0, options
        assert _changed(stand) == {"auto_release": sent}, options
    stand = Stand(tmp_path, {SHOW: a_lease(auto_release=None)})
    shown = stand.run("lease", "extend", LEASE_ID, "--time", "2h")
    assert shown.code == 1
    assert "lease update train-1 --auto-release-after" in shown.err


def test_a_change_of_nothing_or_of_opposites_is_wrong_usage(tmp_path: Path) -> None:
    for options in (
        ["update", LEASE_ID],
        ["update", LEASE_ID, "--no-auto-release", "--auto-release-after", "1h"],
        ["update", LEASE_ID, "--any-region", "--region", "eu"],
        ["extend", LEASE_ID],
        ["extend", LEASE_ID, "--time", "soon"],
    ):
        stand = Stand(tmp_path, {SHOW: a_lease()})
        assert stand.run("lease", *options).code == 2, options
        assert not [request for request in stand.requests if request.method == "PATCH"]


def test_a_batch_is_one_request_and_each_lease_is_watched(tmp_path: Path) -> None:
    ready = [other("019ba", "worker-1"), other("019bb", "worker-2")]
    stand = Stand(tmp_path, {"POST /v1/leases/batch": httpx.Response(202, json={"items": ready})})
    shown = stand.run(
        "lease", "create", "h100x8", "--count", "2", "--name", "worker", "--priority", "80", "--no-wait", "-q"
    )
    assert shown.code == 0, shown.err
    assert shown.out.split() == [lease["id"] for lease in ready]
    assert _created(stand) == {"sku": "h100x8", "count": 2, "name": "worker", "priority": 80}


def test_a_lease_that_nobody_may_log_in_to_needs_a_word(tmp_path: Path) -> None:
    stand = Stand(tmp_path, {"POST /v1/leases": httpx.Response(202, json=a_lease("placing"))})
    assert stand.run("lease", "create", "h100x8", "--no-ssh-key", "--no-wait").code == 0
    assert _created(stand) == {"sku": "h100x8", "ssh_key_ids": []}


def test_lengths_of_time_and_labels_that_cannot_be_read_are_wrong_usage(tmp_path: Path) -> None:
    for option, value in (
        ("--wait-timeout", "30"),
        ("--wait-timeout", "-1m"),
        ("--wait-timeout", "1w"),
        ("--auto-release-after", "soon"),
        ("--auto-release-spend", "1 USD"),
        ("--label", "team"),
        ("--label", "=vision"),
    ):
        with case(option, value):
            shown = Stand(tmp_path).run("lease", "create", "h100x8", f"{option}={value}")
            assert shown.code == 2
            assert option in shown.err


def test_a_list_is_narrowed_by_labels_and_by_what_waits(tmp_path: Path) -> None:
    stand = Stand(tmp_path, {"GET /v1/leases": {"items": [], "next_cursor": None}})
    stand.run("lease", "list", "--label", "team=vision", "--label", "run=7", "--waiting", "--all")
    (request,) = stand.requests
    assert request.url.params.get_list("label") == ["team=vision", "run=7"]
    assert request.url.params["waiting"] == "true"


def _stream(*statuses: Json) -> httpx.Response:
    text = "".join(f"event: status\ndata: {json.dumps(status)}\n\n" for status in statuses)
    return httpx.Response(200, text=text, headers={"content-type": "text/event-stream"})


def test_a_lease_is_watched_until_it_is_ready_and_then_shown(tmp_path: Path) -> None:
    polled = iter([a_lease("starting"), a_lease("ready")])
    known: dict[str, Answer] = {
        "GET /v1/ssh-keys": answers.SSH_KEYS,
        "POST /v1/leases": httpx.Response(202, json=a_lease("placing")),
        f"{SHOW}/events": _stream(answers.status("starting"), answers.status("ready")),
        SHOW: lambda _: httpx.Response(200, json=next(polled)),
    }
    shown = Stand(tmp_path, known).run("lease", "create", "h100x8")
    assert shown.code == 0
    assert shown.out.startswith("train-1  ● ready")
    assert [line.partition("  ")[2] for line in shown.err.splitlines()[1:]] == [
        "train-1  placing 0/7  Choosing a machine.",
        "train-1  starting 3/7  The machine runs; connecting.",
        "train-1  ready 7/7  Ready.",
    ]


def test_quiet_prints_the_id_of_a_new_lease_and_nothing_else(tmp_path: Path) -> None:
    polled = iter([a_lease("starting"), a_lease("ready")])
    known: dict[str, Answer] = {
        "GET /v1/ssh-keys": answers.SSH_KEYS,
        "POST /v1/leases": httpx.Response(202, json=a_lease("placing")),
        f"{SHOW}/events": _stream(answers.status("starting"), answers.status("ready")),
        SHOW: lambda _: httpx.Response(200, json=next(polled)),
    }
    shown = Stand(tmp_path, known).run("lease", "create", "h100x8", "-q")
    assert (shown.out, shown.err, shown.code) == (f"{LEASE_ID}\n", "", 0)


def test_a_lease_that_ends_on_its_way_is_a_failure_with_its_reason(tmp_path: Path) -> None:
    ended = a_lease("ended", end_reason="no_capacity", end_why="no offer could serve it for 30 min")
    known: dict[str, Answer] = {
        "GET /v1/ssh-keys": answers.SSH_KEYS,
        "POST /v1/leases": httpx.Response(202, json=a_lease("placing")),
        f"{SHOW}/events": _stream(answers.status("ended")),
        SHOW: ended,
    }
    shown = Stand(tmp_path, known).run("lease", "create", "h100x8", "--json")
    assert shown.code == 1
    error = json.loads(shown.err.splitlines()[-1])
    assert error["code"] == "no_capacity"
    assert error["detail"].startswith("train-1: no offer could serve it for 30 min.")
    assert json.loads(shown.out)["end_reason"] == "no_capacity"


def test_several_leases_are_watched_at_once(tmp_path: Path) -> None:
    second = other("019bb", "train-2", "starting")
    known: dict[str, Answer] = {
        "GET /v1/leases": listing(second, a_lease("starting")),
        f"{SHOW}/events": _stream(answers.status("ready")),
        SHOW: a_lease(),
        f"GET /v1/leases/{second['id']}/events": _stream(answers.status("ready")),
        f"GET /v1/leases/{second['id']}": other("019bb", "train-2"),
    }
    shown = Stand(tmp_path, known).run("lease", "watch", "train-1", "train-2", "--json")
    assert shown.code == 0
    ready = [(one["name"], one["state"]) for one in json.loads(shown.out)["items"]]
    assert ready == [("train-1", "ready"), ("train-2", "ready")]


def test_whoever_stops_watching_learns_that_the_lease_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(progress, "watch", interrupted)
    known: dict[str, Answer] = {"GET /v1/ssh-keys": answers.SSH_KEYS, "POST /v1/leases": a_lease("placing")}
    shown = Stand(tmp_path, known).run("lease", "create", "h100x8")
    assert shown.code == 130
    assert shown.err.splitlines()[1:] == [
        f"The lease continues. To watch it: splitplane lease watch {LEASE_ID}",
        f"To end it: splitplane lease release {LEASE_ID}",
    ]


def test_a_list_that_is_filtered_does_not_say_that_there_are_no_leases(tmp_path: Path) -> None:
    nothing: dict[str, Answer] = {"GET /v1/leases": {"items": [], "next_cursor": None}}
    for options in ("--waiting", "--label team=vision", "--project research"):
        shown = Stand(tmp_path, nothing).run("lease", "list", *options.split())
        assert shown.out == "No lease matches. Add --all to see ended ones.\n", options


# release


RELEASE = f"POST /v1/leases/{LEASE_ID}/release"


def test_a_release_is_confirmed_by_a_person(tmp_path: Path) -> None:
    known: dict[str, Answer] = {SHOW: a_lease(), RELEASE: httpx.Response(202, json=a_lease("ending"))}
    stand = Stand(tmp_path, known, stdin=Typed("y\n"))
    shown = stand.run("lease", "release", LEASE_ID)
    assert shown.code == 0
    assert "23.92 USD per hour" in shown.err
    assert "◑ ending" in shown.out


@pytest.mark.parametrize(
    ("stdin", "code"), [(Typed("n\n"), 1), (Typed("\n"), 1), (Typed(""), 1), (io.StringIO(), 2)]
)
def test_without_a_yes_nothing_is_released(stdin: io.StringIO, code: int, tmp_path: Path) -> None:
    stand = Stand(tmp_path, {SHOW: a_lease()}, stdin=stdin)
    assert stand.run("lease", "release", LEASE_ID).code == code
    assert [request.method for request in stand.requests] == ["GET"]


def test_a_lease_that_cannot_be_released_does_not_keep_the_others(tmp_path: Path) -> None:
    second = other("019bb", "train-2")
    problem = httpx.Response(404, json={"detail": "There is no such lease.", "code": "lease_not_found"})
    known: dict[str, Answer] = {
        "GET /v1/leases": listing(second, a_lease()),
        RELEASE: problem,
        f"POST /v1/leases/{second['id']}/release": httpx.Response(202, json=second | {"state": "ending"}),
    }
    shown = Stand(tmp_path, known).run("lease", "release", "train-1", "train-2", "--yes", "--json")
    assert shown.code == 1
    assert [one["name"] for one in json.loads(shown.out)["items"]] == ["train-2"]
    assert json.loads(shown.err)["code"] == "lease_not_found"


# Foreign text


def test_text_from_a_server_or_provider_cannot_drive_the_terminal(tmp_path: Path) -> None:
    evil = a_lease(
        name="\x1b]0;owned\x07[red]x[/red]\u202e:fire:", end_why="line\nbreak\x1b[2J", end_reason="released"
    )
    for command in ("show", "list"):
        known: dict[str, Answer] = {SHOW: evil, "GET /v1/leases": listing(evil)}
        arguments = [command, *([LEASE_ID] if command == "show" else [])]
        out = Stand(tmp_path, known).run("lease", *arguments).out
        assert not {"\x1b", "\x07", "\u202e"} & set(out)
        assert "[red]x[/red]" in out
        json_out = Stand(tmp_path, known).run("lease", *arguments, "--json").out
        assert not {"\x1b", "\x07", "\u202e"} & set(json_out)


def test_a_reboot_that_is_waited_for_and_fails_says_why_and_exits_with_one(tmp_path: Path) -> None:
    path = f"POST /v1/leases/{LEASE_ID}/reboot"
    failed = a_lease(power=answers.a_power(why="it did not answer within ten minutes"))
    rebooting = a_lease(power=answers.a_power("rebooting"))
    for options, code in (([], 0), (["--wait"], 1)):
        read = iter([a_lease(), rebooting, failed])

        def now(_: httpx.Request, read: Iterator[dict[str, Any]] = read) -> httpx.Response:
            return httpx.Response(200, json=next(read))

        events = httpx.Response(
            200, text="event: status\ndata: {}\n\n" * 2, headers={"content-type": "text/event-stream"}
        )
        known: dict[str, Answer] = {SHOW: now, f"{SHOW}/events": events, path: rebooting}
        shown = Stand(tmp_path, known).run("lease", "reboot", LEASE_ID, *options)
        assert shown.code == code, shown.err
    assert "error: power_failed: train-1: reboot failed: it did not answer within ten minutes" in shown.err
