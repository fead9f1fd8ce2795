"""What the section `sign_in` of a stack adds to the public service: settings, a secret, and the way to the issuer."""

from dataclasses import replace

from infra.config import SignIn
from infra.services import FILES, Reach, Service

SECRET = "oidc-client-secret"  # noqa: S105 - the name of a secret


def with_sign_in(catalogue: tuple[Service, ...], sign_in: SignIn | None) -> tuple[Service, ...]:
    """The catalogue, where people can sign in through an OpenID provider at the public service."""
    if sign_in is None:
        return catalogue
    return tuple(_extended(service, sign_in) if service.public else service for service in catalogue)


def _extended(service: Service, sign_in: SignIn) -> Service:
    environment = {
        "SPLITPLANE_OIDC_ISSUER": sign_in.issuer,
        "SPLITPLANE_OIDC_CLIENT_ID": sign_in.client_id,
        "SPLITPLANE_OIDC_EMAIL_DOMAINS": ",".join(sign_in.email_domains),
    }
    files = {}
    if sign_in.client_secret:
        environment["SPLITPLANE_OIDC_CLIENT_SECRET_PATH"] = f"{FILES}/{SECRET}"
        files[SECRET] = SECRET
    return replace(
        service,
        environment={**service.environment, **{name: value for name, value in environment.items() if value}},
        files={**service.files, **files},
        reaches=service.reaches | {Reach.ISSUER},
    )
