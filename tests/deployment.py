"""What a Helm chart of a few plain actions becomes: no cluster and no Helm is needed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

ACTION = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}", re.DOTALL)
BLOCK = re.compile(r"(if|range|define)\b\s*(.*)")


class Chart:
    """A chart's templates with its values.

    Known are the actions that SAGE's chart uses: fields, `include`, `if`, `range`, `define`, and
    the functions `quote`, `toJson` and `nindent`; any other is an error.
    """

    def __init__(self, folder: Path, release: str, **values: Any) -> None:
        given = yaml.safe_load((folder / "values.yaml").read_text())
        self.scope = {"Values": given | values, "Release": {"Name": release}}
        self.folder = folder
        self.defined: dict[str, list[str]] = {}
        for path in sorted((folder / "templates").glob("*.tpl")):
            self._render(_pieces(path.read_text()), self.scope)

    def manifests(self) -> list[dict[str, Any]]:
        """Every document of every template."""
        found = []
        for path in sorted((self.folder / "templates").glob("*.yaml")):
            text = self._render(_pieces(path.read_text()), self.scope)
            found += [item for item in yaml.safe_load_all(text) if item]
        return found

    def _render(self, pieces: list[str], dot: Any) -> str:
        out, at = "", 0
        while at < len(pieces):
            if at % 2 == 0:
                out += pieces[at]
            elif block := BLOCK.match(pieces[at]):
                end = _end(pieces, at)
                inner = pieces[at + 1 : end]
                if block[1] == "define":
                    self.defined[json.loads(block[2])] = inner
                elif block[1] == "if" and self._value(block[2], dot):
                    out += self._render(inner, dot)
                elif block[1] == "range":
                    out += "".join(self._render(inner, item) for item in self._value(block[2], dot))
                at = end
            else:
                out += self._text(pieces[at], dot)
            at += 1
        return out

    def _text(self, action: str, dot: Any) -> str:
        first, *functions = (part.strip() for part in action.split("|"))
        value = self._value(first, dot)
        for function in functions:
            name, *arguments = function.split()
            if name == "quote":
                value = json.dumps(str(value))
            elif name == "toJson":
                value = json.dumps(value)
            elif name == "nindent":
                lines = str(value).strip("\n").splitlines()
                value = "\n" + "\n".join(" " * int(arguments[0]) + line for line in lines)
            else:
                raise ValueError(f"unknown function {name}")
        return str(value)

    def _value(self, text: str, dot: Any) -> Any:
        if include := re.fullmatch(r'include ("[^"]+") \.', text):
            return self._render(self.defined[json.loads(include[1])], dot)
        if not text.startswith("."):
            raise ValueError(f"unknown action {text}")
        found = dot
        for name in filter(None, text.split(".")):
            found = found[name]
        return found


def _pieces(text: str) -> list[str]:
    """Text and actions in turn; a dash takes the white space beside it away."""
    text = re.sub(r"\s*\{\{-", "{{", text)
    text = re.sub(r"-\}\}\s*", "}}", text)
    return ACTION.split(text)


def _end(pieces: list[str], at: int) -> int:
    """Where the block that begins at an action ends."""
    depth = 0
    for place in range(at, len(pieces), 2):
        depth += bool(BLOCK.match(pieces[place])) - (pieces[place] == "end")
        if not depth:
            return place
    raise ValueError(f"{pieces[at]} has no end")
