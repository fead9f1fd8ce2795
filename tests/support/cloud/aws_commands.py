"""Says what is wrong with a command of the AWS CLI, by what the CLI itself is made of: botocore's models of the services.

Only what the CLI adds to them by hand is listed here (ADDED), as its reference has it for version 2
(https://awscli.amazonaws.com/v2/documentation/api/latest/, November 2026).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import jmespath
from botocore import xform_name
from botocore.model import ListShape, OperationModel, Shape, StructureShape
from botocore.session import Session
from botocore.validate import ParamValidator
from jmespath.exceptions import JMESPathError

GLOBAL = {"--query", "--output", "--region", "--profile"}
PLACEHOLDER = "X"
"""Stands for what a shell would put there."""
ADDED: Mapping[str, frozenset[str]] = {
    "logs tail": frozenset({"--since", "--follow", "--log-stream-names", "--log-stream-name-prefix", "--format"}),
    "ecr get-login-password": frozenset(),
}  # fmt: skip
"""Commands that are no operation of their service, with their options."""
SIMPLE_RULES = frozenset({"--protocol", "--port", "--cidr", "--source-group"})
"""What describes one rule of a security group in place of --ip-permissions."""
ADDED_OPTIONS: Mapping[str, frozenset[str]] = {
    "authorize-security-group-ingress": SIMPLE_RULES,
    "revoke-security-group-ingress": SIMPLE_RULES,
}
_SESSION = Session()


def fault(words: Sequence[str]) -> str | None:
    """What is wrong with `aws` and these words; a command without any option is only a mention."""
    service, verb, *rest = words
    if (added := ADDED.get(f"{service} {verb}")) is not None:
        return _unknown(rest, added)
    if service not in _SESSION.get_available_services():
        return f"there is no {service}"
    if verb == "wait":
        return _fault_of_waiter(service, rest)
    operation = _operation(service, verb)
    if operation is None:
        return f"{service} has no {verb}"
    return next(_faults(operation, verb, rest), None) if rest else None


@cache
def _operation(service: str, verb: str) -> OperationModel | None:
    model = _SESSION.get_service_model(service)
    names = {xform_name(name, "-"): name for name in model.operation_names}
    return model.operation_model(names[verb]) if verb in names else None


def _fault_of_waiter(service: str, words: Sequence[str]) -> str | None:
    waiters = _SESSION.get_waiter_model(service)
    names = {xform_name(name, "-"): name for name in waiters.waiter_names}
    if not words or words[0] not in names:
        return f"{service} wait has no {words}"
    verb = xform_name(waiters.get_waiter(names[words[0]]).operation, "-")
    operation = _operation(service, verb)
    assert operation is not None
    return next(_faults(operation, verb, words[1:]), None) if words[1:] else None


def _unknown(words: Sequence[str], options: frozenset[str]) -> str | None:
    unknown = {word for word in words if word.startswith("--")} - options - GLOBAL
    return f"there is no option {', '.join(sorted(unknown))}" if unknown else None


def _faults(operation: OperationModel, verb: str, words: Sequence[str]) -> Iterator[str]:
    shape = operation.input_shape
    members = {xform_name(name, "-"): name for name in shape.members} if shape else {}
    more = ADDED_OPTIONS.get(verb, frozenset())
    given: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            given[word] = []
        elif given:
            given[list(given)[-1]].append(word)
        else:
            yield f"{word} stands before any option"
    for option, values in given.items():
        name = option.removeprefix("--")
        if option == "--query":
            yield from _faults_of_query(operation, " ".join(values))
        elif name in members or name.removeprefix("no-") in members:
            value = shape.members[members[name if name in members else name.removeprefix("no-")]]
            yield from (f"{option}: {one}" for one in _faults_of_value(value, values))
        elif option not in GLOBAL | more:
            yield f"there is no option {option}"
    missing = {f"--{xform_name(name, '-')}" for name in (shape.required_members if shape else ())} - set(
        given
    )
    if missing:
        yield f"{', '.join(sorted(missing))} is missing"


def _faults_of_query(operation: OperationModel, query: str) -> Iterator[str]:
    """Only the first name is held against the answer: the rest depends on what is in it."""
    try:
        jmespath.compile(query)
    except JMESPathError as error:
        yield f"--query: {error}"
    first = re.match(r"\w+", query)
    answer = operation.output_shape
    if first is None or answer is None or first[0] not in answer.members:
        yield f"--query: the answer has no {query}"


def _faults_of_value(shape: Shape, values: Sequence[str]) -> Iterator[str]:
    if shape.type_name == "boolean":
        if values:
            yield f"takes no value, and gets {values}"
        return
    if not values:
        yield "has no value"
    for value in values:
        if value.startswith(("{", "[")):
            report = ParamValidator().validate(json.loads(value), shape)
            yield from (problem for problem in [report.generate_report()] if problem)
        elif shape.type_name in ("structure", "list"):
            yield from (
                f"has no {name}" for name in re.findall(r"(\w+)=", value) if name not in _names(shape)
            )
        elif (known := getattr(shape, "enum", None)) and value not in (*known, PLACEHOLDER):
            yield f"is one of {known}, not {value}"


def _names(shape: Shape) -> set[str]:
    """The members of a structure, and of those in it, by which the shorthand names them."""
    match shape:
        case ListShape():
            return _names(shape.member)
        case StructureShape():
            return set(shape.members).union(*(_names(member) for member in shape.members.values()))
    return set()
