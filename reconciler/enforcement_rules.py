"""Reads the rules of enforcement from their file: the one that is shipped, or an operator's."""

import hashlib
import tomllib
from importlib import resources
from pathlib import Path

import control_plane
from control_plane.domain.enforcement_rules import EnforcementRules, EnforcementRulesError, rules_of
from environment.reading import SettingsError


def parse_rules(text: str) -> EnforcementRules:
    """Read rules in TOML. Raises EnforcementRulesError."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise EnforcementRulesError(f"not TOML: {error}") from error
    return rules_of(tables, hashlib.sha256(text.encode()).hexdigest()[:16])


def shipped_rules() -> EnforcementRules:
    """The rules that are in force unless an operator names others."""
    return parse_rules((resources.files(control_plane) / "enforcement_rules.toml").read_text("utf-8"))


def read_rules(path: Path | None) -> EnforcementRules:
    """The rules of a file; those that are shipped without one. Raises SettingsError."""
    if path is None:
        return shipped_rules()
    try:
        return parse_rules(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, EnforcementRulesError) as error:
        raise SettingsError(f"SPLITPLANE_ENFORCEMENT_RULES: {path} cannot be used: {error}") from error
