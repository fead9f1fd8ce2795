"""What signing in needs besides the world, from the settings."""

from dataclasses import dataclass

from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.identity.issuer import Client, Issuer
from control_plane.services.key_ring import KeyRing
from control_plane.settings import Settings, SettingsError
from control_plane.vault.token_keys import TokenKeyManager, read_token_keys
from control_plane.world import World
from environment.private_files import read_private

NOT_CONFIGURED = Refused(
    RefusalCode.SIGN_IN_NOT_CONFIGURED,
    "This installation has no issuer to sign in with. Use an API key; its operator finds more in docs/signin.md.",
)


@dataclass(frozen=True, slots=True)
class SigningIn:
    url: str
    """The API's own URL: the issuer of its tokens, without a slash at the end."""
    keys: KeyRing
    issuer: Issuer | None
    """With whom people sign in; None: only service accounts get tokens."""
    email_domains: frozenset[str] = frozenset()
    """The domains of the email addresses that people may sign in with; empty: any."""

    @property
    def redirect_uri(self) -> str:
        return f"{self.url}/auth/callback"

    @property
    def secure(self) -> bool:
        """Whether browsers reach us with https, so that cookies may demand it."""
        return self.url.startswith("https://")


def signing_in(settings: Settings, world: World) -> SigningIn | None:
    """None when tokens are not configured. Raises SettingsError."""
    if settings.public_url is None:
        if settings.oidc_issuer is not None or settings.token_key is not None:
            raise SettingsError("set SPLITPLANE_PUBLIC_URL too: people and tokens name the API by it")
        return None
    manager = _manager(settings)
    if manager is None:
        raise SettingsError(
            "SPLITPLANE_PUBLIC_URL needs SPLITPLANE_KMS_KEY or SPLITPLANE_TOKEN_KEY_PATH, which seal the keys of tokens"
        )
    return SigningIn(
        settings.public_url, KeyRing(world, manager), _issuer(settings, world), _domains(settings)
    )


def _manager(settings: Settings) -> TokenKeyManager | None:
    if settings.token_key is not None:
        try:
            return read_token_keys(settings.token_key)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise SettingsError(f"SPLITPLANE_TOKEN_KEY_PATH is {str(settings.token_key)!r}: {why}") from error
    if settings.kms_key is None:
        return None
    from control_plane.vault.token_keys_kms import (  # noqa: PLC0415 - boto3 loads only where it is used
        KmsTokenKeys,
    )

    return KmsTokenKeys(settings.kms_key)


def _issuer(settings: Settings, world: World) -> Issuer | None:
    if settings.oidc_issuer is None:
        return None
    if not settings.oidc_client_id:
        raise SettingsError("SPLITPLANE_OIDC_ISSUER needs SPLITPLANE_OIDC_CLIENT_ID")
    secret = ""
    if settings.oidc_client_secret is not None:
        try:
            secret = read_private(settings.oidc_client_secret).decode("ascii").strip()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            path = str(settings.oidc_client_secret)
            raise SettingsError(f"SPLITPLANE_OIDC_CLIENT_SECRET_PATH is {path!r}: {why}") from None
    return Issuer(Client(settings.oidc_issuer, settings.oidc_client_id, secret), now=world.now)


def _domains(settings: Settings) -> frozenset[str]:
    return frozenset(domain.lower() for domain in settings.oidc_email_domains)
