import base64

import pytest

from data_plane.cluster.admin import credential_of
from data_plane.cluster.port import Unauthorized

CERTIFICATE, KEY = (base64.b64encode(text.encode()).decode() for text in ("certificate", "key"))


def test_the_administrators_certificate_is_read_from_what_k3s_wrote() -> None:
    text = (
        "apiVersion: v1\nusers:\n- name: default\n  user:\n"
        f"    client-certificate-data: {CERTIFICATE}\n    client-key-data: {KEY}\n"
    )
    found = credential_of(text)
    assert (found.certificate, found.key) == ("certificate", "key")


def test_what_cannot_be_read_is_refused_without_a_word_of_it() -> None:
    broken = (
        "",
        "[",
        "users: []",
        f"users: [{{user: {{client-key-data: {KEY}}}}}]",
        "users: [1]",
        f"{KEY}: {KEY}",
    )
    for text in broken:
        with pytest.raises(Unauthorized) as caught:
            credential_of(text)
        assert KEY not in str(caught.value), text
