"""Which providers exist, and which accounts with them are switched on.

A provider is a module of this folder that has the four names NAME, Settings, CAPABILITIES and
`connect`. There is no list of providers to maintain; `tests/golden/roster.txt` shows a new one in the diff.

An account is named after its provider: `lambda_cloud`, or `lambda_cloud/research` for a second
account. Its settings come from what an operator stored, sealed, or from environment variables: the field `api_key` is
read from `PROVIDER_LAMBDA_CLOUD_API_KEY`, or from `PROVIDER_LAMBDA_CLOUD_RESEARCH_API_KEY`. An account whose
settings are incomplete or unreadable is off and says why, so that the other accounts still work. An
account whose provider does not exist is a mistake in the deployment and raises.
"""

import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from types import MappingProxyType, ModuleType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import providers
from control_plane.domain.ids import AccountName
from providers.base import Capabilities, Provider

REQUIRED_NAMES = ("NAME", "Settings", "CAPABILITIES", "connect")
ACCOUNT_PATTERN = re.compile(r"[a-z][a-z0-9_]*(/[a-z][a-z0-9-]*)?")
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


class UnknownProviderError(ValueError):
    """An account names a provider that no module of this folder implements."""


class AccountOffError(RuntimeError):
    """The account cannot connect, because its settings are incomplete or unreadable."""


class _UnreadableError(ValueError):
    """A variable is missing or cannot be converted to its field's type."""


@dataclass(frozen=True, slots=True)
class Account:
    """A provider account as configured. Its repr shows no secret, because Settings hide theirs."""

    name: AccountName
    module: ModuleType
    settings: object | None
    off_because: str | None = None
    """Names the variable to set or correct; None when the account is on."""

    @property
    def provider(self) -> str:
        return str(self.module.NAME)

    @property
    def capabilities(self) -> Capabilities:
        """The provider's facts. A connected provider may know more precise ones about its account."""
        found = self.module.CAPABILITIES
        assert isinstance(found, Capabilities)  # noqa: S101 - a provider's file is ours, not input
        return found

    @property
    def on(self) -> bool:
        return self.off_because is None

    def connect(self) -> Provider:
        """The provider without a guard; callers wrap it in `guard.Guard`. Raises AccountOffError."""
        if self.off_because is not None:
            raise AccountOffError(f"{self.name}: {self.off_because}")
        provider: Provider = self.module.connect(self.settings)
        return provider


@cache
def discovered() -> Mapping[str, ModuleType]:
    """Every provider by its NAME, sorted."""
    found: dict[str, ModuleType] = {}
    for entry in pkgutil.iter_modules(providers.__path__):
        if entry.ispkg:
            continue
        module = importlib.import_module(f"{providers.__name__}.{entry.name}")
        has = [name for name in REQUIRED_NAMES if name in vars(module)]
        if not has:
            continue
        assert len(has) == len(REQUIRED_NAMES), (  # noqa: S101 - a half-written provider must not be skipped silently
            f"{entry.name} has {has} of {REQUIRED_NAMES}"
        )
        assert entry.name == module.NAME, f"{entry.name}.py calls itself {module.NAME}"  # noqa: S101
        assert module.NAME not in found, f"two providers are called {module.NAME}"  # noqa: S101
        found[module.NAME] = module
    return MappingProxyType(dict(sorted(found.items())))


def configured(accounts: Sequence[AccountName], environ: Mapping[str, str]) -> tuple[Account, ...]:
    """The accounts with their settings, in the given order.

    Raises UnknownProviderError for a provider that does not exist, ValueError for a malformed or
    repeated name.
    """
    if len(set(accounts)) != len(accounts):
        raise ValueError(f"an account is named twice: {', '.join(accounts)}")
    return tuple(_configured(name, environ) for name in accounts)


def stored(name: AccountName, given: Mapping[str, str]) -> Account:
    """The account with settings that an operator gave, by the names of their fields. It is off when one is wrong.

    Raises UnknownProviderError for a provider that does not exist, ValueError for a malformed name.
    """
    module = _module(name)
    known = [field.name for field in fields(module.Settings)]
    if not given.keys() <= set(known):
        # The names that were given are not repeated: one may be a secret in the wrong place.
        return Account(name, module, None, off_because=f"{module.NAME} takes only {', '.join(known)}")
    return _account(name, module, given, lambda field: field)


def variable(account: AccountName, field: str) -> str:
    """The environment variable that a field of an account's settings is read from.

    >>> variable(AccountName("lambda_cloud/research"), "api_key")
    'PROVIDER_LAMBDA_CLOUD_RESEARCH_API_KEY'
    """
    return "_".join(("PROVIDER", *re.split(r"[/-]", account), field)).upper()


def _configured(name: AccountName, environ: Mapping[str, str]) -> Account:
    return _account(name, _module(name), environ, lambda field: variable(name, field))


def _module(name: AccountName) -> ModuleType:
    """The provider of an account. Raises UnknownProviderError or ValueError."""
    if not ACCOUNT_PATTERN.fullmatch(name):
        raise ValueError(f"not an account name: {name[:60]!r}; write provider or provider/label")
    module = discovered().get(name.partition("/")[0])
    if module is None:
        known = ", ".join(discovered())
        raise UnknownProviderError(f"no provider for account {name!r}; there are {known}")
    return module


def _account(
    name: AccountName, module: ModuleType, given: Mapping[str, str], called: Callable[[str], str]
) -> Account:
    """An account with the settings in `given`, in which each field is `called` something."""
    try:
        return Account(name, module, _settings(name, module.Settings, given, called))
    except _UnreadableError as error:
        return Account(name, module, None, off_because=str(error))


def _settings(
    account: AccountName, kind: type[Any], given: Mapping[str, str], called: Callable[[str], str]
) -> object:
    hints = get_type_hints(kind)
    values: dict[str, object] = {}
    for field in fields(kind):
        name = called(field.name)
        text = given.get(name, "").strip()
        if text:
            values[field.name] = _read(name, text, hints[field.name])
        elif _required(field):
            raise _UnreadableError(f"{name} is not set")
    try:
        return kind(**values)
    except ValueError as error:
        raise _UnreadableError(f"settings of {account}: {error}") from None


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _read(name: str, text: str, kind: Any) -> object:
    """The value of a variable as its field's type. An error does not repeat the text, which may be a secret."""
    if get_origin(kind) in (Union, UnionType):
        kind = next(arm for arm in get_args(kind) if arm is not type(None))
    try:
        if kind is bool:
            return _flag(text)
        return kind(text)
    except (ValueError, TypeError):
        raise _UnreadableError(f"{name} cannot be read as {getattr(kind, '__name__', kind)}") from None


def _flag(text: str) -> bool:
    word = text.lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(text)
    return word in _TRUE
