"""Why somebody cannot be signed in with the issuer."""

from control_plane.domain.refusal import RefusalCode, Refused


class IdentityError(Exception):
    """The issuer, or what it signed, cannot be used. It never contains a code, a token or a secret."""

    def __init__(self, code: RefusalCode, why: str) -> None:
        super().__init__(why)
        self.refused = Refused(code, why)


def unavailable(why: str) -> IdentityError:
    return IdentityError(
        RefusalCode.ISSUER_UNAVAILABLE, f"The issuer cannot be used now: {why}. Try again in a minute."
    )
