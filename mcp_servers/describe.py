"""Text descriptions of tools for prompts, MCP clients and `sage tools show`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from mcp_servers.spec import ToolSpec


def describe_tool(spec: ToolSpec, nested: bool = False) -> str:
    """Describe a tool for a prompt: arguments, result, units, limits and known failures.

    If `nested` is true, also list the fields of nested values.
    """
    lines = [f"{spec.name} ({spec.suite}, version {spec.version}): {spec.summary}"]
    lines.append("  takes: " + (_fields(spec.input_schema, nested) or "nothing"))
    lines.append("  returns: " + (_fields(spec.output_schema, nested) or "nothing"))
    lines.append("  " + describe_limits(spec))
    lines.extend(f"  {line}" for line in describe_validity(spec))
    return "\n".join(lines)


def describe_limits(spec: ToolSpec) -> str:
    """Describe the resources that a tool needs in a single line."""
    need = spec.resources
    note = f" ({need.memory_note})" if need.memory_note else ""
    text = f"needs {need.cpu} CPU, {need.memory_mb} MiB{note}, GPU {need.gpu}"
    if need.seconds_per_item is not None:
        text += f", about {need.seconds_per_item:g} s per item"
    return text


def describe_validity(spec: ToolSpec) -> list[str]:
    """Describe the validity card, with a line per statement."""
    lines = []
    card = spec.validity
    if card is not None:
        scope = [part for part in (card.stain, card.organ) if part]
        if card.mpp is not None:
            scope.append(f"{card.mpp[0]:g}-{card.mpp[1]:g} µm per pixel")
        if scope:
            lines.append("valid for: " + ", ".join(scope))
        if card.training_data:
            lines.append(f"trained on: {card.training_data}")
        if card.tcga_overlap:
            lines.append(f"overlap with TCGA: {card.tcga_overlap}")
        if card.accuracy:
            lines.append(f"accuracy: {card.accuracy}")
        lines.extend(f"known failure: {failure}" for failure in card.known_failures)
    if spec.license:
        lines.append(f"license of weights: {spec.license}")
    return lines


def check_card(spec: ToolSpec, result: dict[str, Any]) -> dict[str, Any]:
    """Return the result's `warnings`, plus one if the pixel size is outside the card's range."""
    card, mpp = spec.validity, result.get("mpp")
    if card is None or card.mpp is None or mpp is None or "warnings" not in result:
        return {}
    low, high = card.mpp
    if low <= mpp <= high:
        return {}
    text = f"{spec.name} is valid for {low:g} to {high:g} µm per pixel, but this slide has {mpp:g}"
    return {"warnings": [*result["warnings"], text]}


def _fields(schema: dict[str, Any], nested: bool = False) -> str:
    required = set(schema.get("required", ()))
    inner = schema.get("$defs", {}) if nested else {}
    parts = []
    for name, field in schema.get("properties", {}).items():
        text = f"{name}: {type_word(field, inner)}"
        if "default" in field and name not in required:
            text += f" = {field['default']!r}"
        if field.get("description"):
            text += f" ({field['description']})"
        parts.append(text)
    return "; ".join(parts)


def type_word(schema: dict[str, Any], inner: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Describe a JSON schema's type in a word or two, including the fields of types in `inner`."""
    if "enum" in schema:
        return " | ".join(str(item) for item in schema["enum"])
    if "const" in schema:
        return repr(schema["const"])
    if "$ref" in schema:
        name = str(schema["$ref"]).rsplit("/", 1)[-1]
        fields = inner.get(name, {}).get("properties", {})
        below = {own: held for own, held in inner.items() if own != name}
        words = ", ".join(f"{field}: {type_word(held, below)}" for field, held in fields.items())
        return f"{name} {{{words}}}" if words else name
    if "anyOf" in schema:
        return " | ".join(type_word(item, inner) for item in schema["anyOf"])
    kind = schema.get("type", "any")
    if kind == "array":
        items = schema.get("items")
        return f"list of {type_word(items, inner)}" if isinstance(items, dict) else "list"
    return str(kind)
