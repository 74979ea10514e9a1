"""Base of the models of matrices and inventories, and the types of their values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
)
from pydantic_core import to_jsonable_python
from pydantic_core.core_schema import CoreSchema, no_info_after_validator_function

from pytest_hetgpu.model.messages import show
from pytest_hetgpu.model.sizes import parse_size


def listed(value: Any) -> Any:
    """Return a list; a single value becomes a list of it."""
    if not isinstance(value, (str, list)):
        raise ValueError(f"a single value or a list is needed here, not {show(value)}")
    return [value] if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a text, for `Annotated`; `words` describe it in messages."""

    pattern: str
    words: str

    def check(self, text: str) -> str:
        """Return the text. Raises ValueError unless all of it has the form."""
        if not re.fullmatch(self.pattern, text):
            raise ValueError(f"{show(text)} must {self.words}")
        return text

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "pattern": self.pattern}


NAME = Form(
    # A name starts neither hidden folders nor options.
    r"^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,79}$",
    "have only letters, digits and _ . + - (at most 80, the first a letter, digit or _)",
)
Name = Annotated[str, NAME]
Names = Annotated[tuple[Name, ...], BeforeValidator(listed, json_schema_input_type=Name | list[Name])]
Variable = Annotated[str, Form(r"^[A-Za-z_][A-Za-z0-9_]*$", "have only letters, digits and _, the first no digit")]
Value = Annotated[
    str,
    # The C strings of an environment and a command line end at a NUL.
    Form(r"^[^\x00]*$", "not hold a NUL character"),
    Field(json_schema_extra={"type": ["string", "number", "boolean"]}),
]
Env = dict[Variable, Value]
Text = Annotated[str, Field(json_schema_extra={"type": ["string", "number", "boolean"]})]
Texts = Annotated[tuple[str, ...], BeforeValidator(listed, json_schema_input_type=str | list[str])]
Bytes = Annotated[int, BeforeValidator(parse_size, json_schema_input_type=str | int)]
# Launchers put it into a command line that a shell on the other node reads.
Prefix = Annotated[str, Form(r"^/[A-Za-z0-9_./+@=~-]*$", "be an absolute path of letters, digits and _ . / + @ = ~ -")]


def plain(settings: object) -> object:
    """Return settings of a runtime, a pydantic model or a dataclass, as maps and lists."""
    return to_jsonable_python(settings, fallback=str)


class Shape(BaseModel):
    """Base of all models: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
