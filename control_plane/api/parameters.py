"""What is wrong with the parameters of a query that the framework could not convert."""

from typing import Any

from litestar import Request
from litestar.params import ParameterKwarg
from litestar.typing import FieldDefinition
from msgspec import Meta, inspect

from control_plane.api.faults import choices, must
from control_plane.domain.refusal import nearest
from control_plane.wire import audit, common, exports, roles
from control_plane.wire.problems import FieldError

_WORDS_OF_PATTERN: dict[str, str] = {
    meta.pattern: (meta.extra or {})["must"]
    for words in (audit, common, exports, roles)
    for kind in vars(words).values()
    for meta in getattr(kind, "__metadata__", ())
    if isinstance(meta, Meta) and meta.pattern
}
"""The words for a pattern of the wire, which queries have in common with bodies."""


def parameter_fault(request: Request[Any, Any, Any], name: str) -> FieldError:
    """The fault of the handler's parameter with this name of Python's, under the name that it has in a query."""
    field = request.route_handler.parsed_fn_signature.parameters.get(name)
    if field is None:
        return FieldError(name, "is invalid")
    bounds = field.kwarg_definition
    in_query = (isinstance(bounds, ParameterKwarg) and bounds.name) or name
    allowed = choices(inspect.type_info(field.annotation))
    given = request.query_params.getall(in_query, [])
    near = next(
        (found for value in given if value not in allowed and (found := nearest(value, allowed))), None
    )
    hint = "" if near is None else f"; did you mean `{near}`?"
    return FieldError(in_query, f"must be {_must(field)}{hint}")


def null_fault(request: Request[Any, Any, Any], in_query: str) -> FieldError | None:
    """The fault of the word `null` in a query, unless the parameter is a text.

    The framework would read the word as a parameter that is left out.
    """
    for name, field in request.route_handler.parsed_fn_signature.parameters.items():
        bounds = field.kwarg_definition
        if isinstance(bounds, ParameterKwarg) and (bounds.name or name) == in_query:
            return None if str in (field.annotation, *field.args) else parameter_fault(request, name)
    return None


def _must(field: FieldDefinition) -> str:
    """What one value of a parameter must be."""
    bounds = field.kwarg_definition
    if isinstance(bounds, ParameterKwarg):
        if bounds.pattern is not None:
            return _WORDS_OF_PATTERN[bounds.pattern]
        if bounds.ge is not None and bounds.le is not None:
            return f"a whole number from {bounds.ge:,} to {bounds.le:,}"
        if bounds.max_length is not None:
            return f"a text of at most {bounds.max_length:,} characters"
    kind = inspect.type_info(field.annotation)
    parts = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    (part,) = [part for part in parts if not isinstance(part, inspect.NoneType)]
    if isinstance(part, inspect.ListType):
        most = getattr(bounds, "max_items", None)
        return must(part.item_type) + (f", given at most {most} times" if most else "")
    return must(part)
