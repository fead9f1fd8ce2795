"""Roles of API keys."""

from enum import StrEnum


class Role(StrEnum):
    CUSTOMER = "customer"
    OPERATOR = "operator"
