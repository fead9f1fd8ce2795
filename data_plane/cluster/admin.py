"""Reads the administrator's kubeconfig, as K3s writes it."""

import base64
import binascii

import yaml

from data_plane.cluster.port import ClientCertificate, Unauthorized


def credential_of(kubeconfig: str) -> ClientCertificate:
    """The certificate and the key in it. Raises Unauthorized, without a word of the text."""
    try:
        (user,) = yaml.safe_load(kubeconfig)["users"]
        certificate = _decoded(user["user"]["client-certificate-data"])
        return ClientCertificate(certificate, _decoded(user["user"]["client-key-data"]))
    except (yaml.YAMLError, ValueError, TypeError, KeyError, binascii.Error):
        raise Unauthorized("the administrator's kubeconfig cannot be read") from None


def _decoded(text: str) -> str:
    return base64.b64decode(text, validate=True).decode("ascii")
