"""How we connect to an API server: TLS that trusts the CA of the cluster alone. Our credential touches no disk."""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from data_plane.cluster.port import ClientCertificate, Cluster


def tls(cluster: Cluster) -> ssl.SSLContext:
    """Raises ssl.SSLError or ValueError when a certificate or a key cannot be read."""
    context = ssl.create_default_context(cadata=cluster.authority)
    if isinstance(cluster.credential, ClientCertificate):
        with (
            _memory_file(cluster.credential.certificate) as certificate,
            _memory_file(cluster.credential.key) as key,
        ):
            context.load_cert_chain(certificate, key)
    return context


@contextmanager
def _memory_file(text: str) -> Iterator[str]:
    """A path of a file that exists in memory only. Python's ssl reads certificates of clients from paths alone."""
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
