"""What operators ask for concerning provider accounts. Credentials go in and never come out."""

from typing import Annotated

from msgspec import Meta

from control_plane.wire.common import AccountText, NextCursor, Request, Sentence, Timestamp, View
from control_plane.wire.vocabulary import AccountRequestIdText, one_of

SETTING_LENGTH_MAX = 8_192
SETTINGS_MAX = 16
SettingName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z][a-z0-9_]*$(?!\n)",
        max_length=48,
        description="A setting of the provider: docs/generated/providers.md lists them.",
        examples=["api_key"],
        extra={"must": "the name of a setting of the provider, in lower-case letters, digits and _"},
    ),
]
SettingText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=SETTING_LENGTH_MAX,
        description="The value of a setting. It is sealed at once, and no answer has it.",
        examples=["the key that the provider gave you"],
        extra={"must": f"a text of 1 to {SETTING_LENGTH_MAX:,} characters"},
        extra_json_schema={"writeOnly": True, "format": "password"},
    ),
]
SettingTexts = Annotated[
    dict[SettingName, SettingText],
    Meta(
        min_length=1,
        max_length=SETTINGS_MAX,
        description="The settings of the account, its credentials among them, by their names.",
        examples=[{"api_key": "the key that the provider gave you"}],
        extra={"must": f"an object of 1 to {SETTINGS_MAX} settings"},
    ),
]
AccountVerbWord = Annotated[
    str,
    one_of(
        "AccountVerb",
        "What is asked for.",
        add="Use the account with these credentials, once the provider has accepted them.",
        rotate="Use new credentials, once the provider has accepted them; until then the old ones stay in force.",
        test="Ask the provider whether it accepts the credentials that are in force.",
        drain="Order nothing there any more. Machines that exist stay as they are.",
        resume="Order there again.",
        arm="Let orphans there be terminated. A new account only reports them.",
        disarm="Only report orphans there.",
        remove="Remove the account and destroy its credentials.",
    ),
]
_CHANGES = ("test", "drain", "resume", "arm", "disarm", "remove")
AccountChangeWord = Annotated[
    str,
    Meta(
        pattern=rf"^({'|'.join(_CHANGES)})$(?!\n)",
        description="What is asked for: `test`, `drain`, `resume`, `arm`, `disarm` or `remove`.",
        examples=["test"],
        extra={"must": "one of test, drain, resume, arm, disarm, remove"},
        extra_json_schema={"enum": list(_CHANGES)},
    ),
]
AccountOutcomeWord = Annotated[
    str,
    one_of(
        "AccountOutcome",
        "What came of it.",
        accepted="It was done, or the provider accepts the credentials.",
        refused="It was not done; `code` and `said` tell why.",
        unreachable="The provider gave no answer, so nothing was changed. Ask again.",
    ),
]
AccountCodeWord = Annotated[
    str,
    one_of(
        "AccountCode",
        "Why it was not done.",
        provider_not_supported="Splitplane has no such provider.",
        settings_invalid="A setting of the provider is missing, unknown or cannot be read.",
        account_exists="The account exists already.",
        account_unknown="There is no such account.",
        account_in_use="Machines may exist there, and without its credentials nobody could end them.",
        account_from_environment="The account is configured in the reconciler's environment.",
        credentials_refused="The provider does not accept the credentials.",
        credentials_of_another_account="The credentials show none of the account's machines.",
        credentials_unreadable="The reconciler's key manager does not open them.",
        no_answer="The provider, or the key manager, gave no answer.",
    ),
]


class AccountCredentialsRequest(Request):
    """An account with its credentials."""

    account: AccountText
    """The account: the name of a provider, and a label of your own for each further account there."""
    settings: SettingTexts
    """Its settings. They are stored sealed, and no answer contains them."""


class AccountChangeRequest(Request):
    """Something that is asked for concerning an account."""

    account: AccountText
    """The provider account."""
    verb: AccountChangeWord
    """What is asked for."""
    why: Sentence
    """Why. Auditors read it, and operators who wonder why nothing is ordered at a drained account."""


class AccountRequestView(View):
    """What was asked for concerning an account, and what came of it. The reconciler does it within seconds."""

    id: AccountRequestIdText
    """The id of the request."""
    account: str
    """The provider account."""
    verb: AccountVerbWord
    """What was asked for."""
    why: str | None
    """Why; null when nobody said."""
    actor: str
    """The id of the API key that asked."""
    asked_at: Timestamp
    """When it was asked for."""
    outcome: AccountOutcomeWord | None
    """What came of it; null while the reconciler has not finished."""
    code: AccountCodeWord | None
    """Why it was not done; null when it was."""
    said: str | None
    """The outcome as a sentence."""
    finished_at: Timestamp | None
    """When it was finished; null before that."""


class AccountRequestPage(View):
    """Requests concerning provider accounts."""

    items: tuple[AccountRequestView, ...]
    """The requests, newest first."""
    next_cursor: NextCursor | None = None
