"""What can go wrong with a key manager. No message contains a key or a secret."""


class KeyManagerError(Exception):
    """A data key could not be made, unwrapped or wrapped anew."""


class KeyManagerRefused(KeyManagerError):  # noqa: N818 - says what happened - reads as a sentence
    """The key manager refuses: no permission, or the master key is disabled, deleted or unknown."""


class KeyManagerUnavailable(KeyManagerError):  # noqa: N818 - says what happened
    """The key manager gave no answer. Asking again is safe."""


class NotOpened(KeyManagerError):  # noqa: N818 - says what happened
    """The bytes do not open: another context or key than they were made with, or they were changed."""


class UnusableKey(Exception):  # noqa: N818 - reads as a sentence
    """Nothing can be sealed for a public key that somebody gave."""
