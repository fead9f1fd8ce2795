"""Kubeconfigs on the command line: asked for, opened, and handed to kubectl without harm to what it had."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support.cases import case
from tests.unit.cli import answers
from tests.unit.cli.answers import KUBECONFIG_FILE, KUBECONFIG_ID, NAMES, a_kubeconfig, sealed
from tests.unit.cli.stand import Answer, Stand

CREATE = "POST /v1/clusters/eu-1/kubeconfigs"
ASK: dict[str, Answer] = {CREATE: sealed}
NAME = "eu-1/research"


def _read(path: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text()))


def _create(stand: Stand, *more: str) -> Any:
    return stand.run("kubeconfig", "create", "--cluster", "eu-1", *more)


def test_a_kubeconfig_is_merged_into_that_of_kubectl_which_keeps_everything_else(tmp_path: Path) -> None:
    file = tmp_path / ".kube" / "config"
    file.parent.mkdir()
    other = {"name": "other", "cluster": {"server": "https://other", "extensions": [{"name": "x"}]}}
    kept = {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {"colors": True},
        "clusters": [other],
        "users": [{"name": "other", "user": {"exec": {"command": "login"}}}],
        "contexts": [{"name": "other", "context": {"cluster": "other", "user": "other"}}],
        "current-context": "other",
    }
    file.write_text(yaml.safe_dump(kept))
    file.chmod(0o644)
    stand = Stand(tmp_path, ASK)
    for _ in range(2):  # The second time it replaces the one of the same name.
        result = _create(stand)
        assert result.code == 0, result.err
        found = _read(file)
        for part in ("clusters", "users", "contexts"):
            assert [entry["name"] for entry in found[part]] == ["other", NAME]
            assert found[part][0] == kept[part][0]  # type: ignore[index]  # Each of them is a list.
        assert (found["preferences"], found["current-context"]) == ({"colors": True}, NAME)
    assert found["users"][1]["user"] == {"token": "a-token"}
    assert found["contexts"][1]["context"] == {"cluster": NAME, "user": NAME, "namespace": "prj-1"}
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in file.parent.iterdir()] == ["config"]
    assert "a-token" not in result.out + result.err


def test_names_that_lead_elsewhere_are_left_alone(tmp_path: Path) -> None:
    """Another organization's project of the same name in the same cluster, or another installation's."""
    file = tmp_path / ".kube" / "config"
    stand = Stand(tmp_path, ASK)
    assert _create(stand).code == 0
    first = _read(file)
    for changed in ({"contexts": "prj-2"}, {"clusters": "https://other"}):
        with case(changed):
            kept = json.loads(json.dumps(first))
            if "contexts" in changed:
                kept["contexts"][0]["context"]["namespace"] = changed["contexts"]
            else:
                kept["clusters"][0]["cluster"]["server"] = changed["clusters"]
            file.write_text(yaml.safe_dump(kept))
            for _ in range(2):
                result = _create(stand)
                assert (result.code, f"Context      {NAME}/prj-1\n" in result.out) == (0, True), result.out
                found = _read(file)
                for part in ("clusters", "users", "contexts"):
                    assert [each["name"] for each in found[part]] == [NAME, f"{NAME}/prj-1"]
                    assert found[part][0] == kept[part][0]
                assert found["current-context"] == f"{NAME}/prj-1"
                assert found["contexts"][1]["context"]["user"] == f"{NAME}/prj-1"


def test_it_is_written_where_the_caller_says(tmp_path: Path) -> None:
    stand = Stand(tmp_path, ASK)
    own = tmp_path / "ci.kubeconfig"
    result = _create(stand, "--output", str(own))
    assert (result.code, _read(own)["current-context"]) == (0, NAME)
    assert f"Context      {NAME}\n" in result.out, "kubectl --context takes what is shown"
    assert own.stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / ".kube").exists()
    assert _create(stand).code == 0
    assert (tmp_path / ".kube" / "config").is_file()
    assert (tmp_path / ".kube").stat().st_mode & 0o777 == 0o700


def test_a_link_stays_one(tmp_path: Path) -> None:
    stand, target = Stand(tmp_path, ASK), tmp_path / "dotfiles"
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").symlink_to(target)
    assert _create(stand).code == 0
    assert (tmp_path / ".kube" / "config").is_symlink()
    assert _read(target)["current-context"] == NAME


def test_what_is_no_configuration_or_locked_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / ".kube" / "config"
    file.parent.mkdir()
    stand = Stand(tmp_path, ASK)
    for broken in ("[", "- a", "clusters: 7", "users: [a]", "users: [{user: {}}]", "\x00"):
        with case(broken):
            file.write_text(broken)
            result = _create(stand)
            assert (result.code, file.read_text()) == (1, broken)
            assert "left as it is" in result.err
            assert [each.name for each in file.parent.iterdir()] == ["config"]
    file.unlink()
    (file.parent / "config.lock").touch()
    result = _create(stand)
    assert result.code == 1
    assert "Another program writes" in result.err
    assert not file.exists()
    result = _create(stand, "--output", str(tmp_path / "nowhere" / "file"))
    assert (result.code, "No such file" in result.err) == (1, True)
    assert not stand.requests, "none is issued whose key would be lost"


def test_one_that_was_issued_and_cannot_be_written_is_named_so_that_it_can_be_revoked(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()

    def locks(request: httpx.Request) -> Any:
        (tmp_path / ".kube" / "config.lock").touch()
        return sealed(request)

    result = _create(Stand(tmp_path, {CREATE: locks}))
    assert result.code == 1
    assert f"kubeconfig revoke {KUBECONFIG_ID}" in " ".join(result.err.split())


def test_it_is_waited_for_and_a_refusal_says_why(tmp_path: Path) -> None:
    looks = iter([a_kubeconfig("wanted"), a_kubeconfig("wanted"), a_kubeconfig("refused")])
    shown = f"GET /v1/kubeconfigs/{KUBECONFIG_ID}"
    stand = Stand(
        tmp_path,
        {CREATE: a_kubeconfig("wanted"), shown: lambda _: httpx.Response(200, json=next(looks))},
    )
    result = _create(stand)
    assert result.code == 1
    assert "is refused: waited too long" in result.err
    stand.answers = {CREATE: a_kubeconfig("wanted"), shown: a_kubeconfig("wanted")}
    result = _create(stand)
    assert result.code == 1
    assert "is not issued yet" in result.err


def test_nothing_but_an_address_an_authority_and_a_token_is_taken_over(tmp_path: Path) -> None:
    """Whoever answers for the API can seal what they like for the key of the request."""
    stand, evil = Stand(tmp_path, {}), json.loads(json.dumps(KUBECONFIG_FILE))
    evil["users"][0]["user"]["exec"] = {"command": "rm"}
    evil["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    evil["clusters"][0]["cluster"]["proxy-url"] = "http://evil"
    stand.answers = {CREATE: lambda request: sealed(request, evil)}
    own = tmp_path / "file"
    assert _create(stand, "--output", str(own)).code == 0
    text = own.read_text()
    for word in ("exec", "rm", "insecure", "proxy", "evil"):
        assert word not in text
    plain = json.loads(json.dumps(KUBECONFIG_FILE))
    plain["clusters"][0]["cluster"]["server"] = "http://k8s-1"
    for bad in (
        plain,
        {},
        {**KUBECONFIG_FILE, "users": []},
        {**KUBECONFIG_FILE, "users": [{"user": {"token": 7}}]},
    ):
        stand.answers = {CREATE: partial(sealed, file=bad)}
        result = _create(stand, "--output", str(tmp_path / "none"))
        assert (result.code, (tmp_path / "none").exists()) == (1, False)
        assert "does not open" in result.err
    # One that is sealed for somebody else.
    stand.answers = {CREATE: a_kubeconfig(sealed="AAAA")}
    assert "does not open" in _create(stand).err


def test_times_are_written_in_minutes_or_hours(tmp_path: Path) -> None:
    stand = Stand(tmp_path, ASK)
    assert _create(stand, "--lasts", "30m", "--output", str(tmp_path / "x")).code == 0
    assert json.loads(stand.requests[-1].content)["lasts_minutes"] == 30
    for bad in ("30", "8 h", "1d", "-1h", "h"):
        assert _create(stand, f"--lasts={bad}").code == 2, bad
    rotated = {f"POST /v1/kubeconfigs/{KUBECONFIG_ID}/rotations": sealed}
    stand.answers = dict(rotated)
    result = stand.run(
        "kubeconfig", "rotate", KUBECONFIG_ID, "--overlap", "2h", "--output", str(tmp_path / "y")
    )
    assert result.code == 0, result.err
    assert json.loads(stand.requests[-1].content)["overlap_minutes"] == 120
    assert answers.KUBECONFIG_ID not in result.err


def test_one_is_named_by_its_id_the_beginning_of_it_or_its_name(tmp_path: Path) -> None:
    other = a_kubeconfig("issued", id=f"kc_{'3' * 32}", name="ci")
    over = a_kubeconfig("expired", id=f"kc_{'4' * 32}", name="laptop")
    again = a_kubeconfig("issued", id=f"kc_{'5' * 32}", name="ci")
    own = a_kubeconfig("issued", name="laptop")
    revoked = {
        f"POST /v1/kubeconfigs/{each['id']}/revoke": each | {"state": "revoked"} for each in (own, other)
    }
    listed = {"GET /v1/kubeconfigs": {"items": [own, other, over], "next_cursor": None}}
    stand = Stand(tmp_path, {**NAMES, **revoked, **listed})
    for word, named in (("laptop", own), ("kc_3333", other), (other["id"], other)):
        result = stand.run("kubeconfig", "revoke", word, "--quiet")
        assert (result.code, result.out.strip()) == (0, named["id"]), (word, result.err)
    assert "There is no kubeconfig 'desk'" in stand.run("kubeconfig", "revoke", "desk").err
    stand.answers = {"GET /v1/kubeconfigs": {"items": [own, other, again], "next_cursor": None}}
    assert "Several kubeconfigs are called 'ci'" in stand.run("kubeconfig", "revoke", "ci").err


@pytest.mark.parametrize("flag", ["--json", "--quiet"])
def test_scripts_get_no_token(tmp_path: Path, flag: str) -> None:
    result = _create(Stand(tmp_path, ASK), flag)
    assert result.code == 0
    assert KUBECONFIG_ID in result.out
    assert "a-token" not in result.out + result.err
