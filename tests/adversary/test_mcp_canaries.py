"""The canary cohort behind a live MCP server: what its tools answer a caller over HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.adversary.hostile import CANARIES, age, identifier, write_canaries
from tests.mcp_servers.test_mcp_server import http, http_server

OS = {"endpoint": "OS"}
ONE = [{"variable": "clinical:age", "op": "le", "value": age(0) + 0.1}]
CALLS: list[tuple[str, dict[str, Any], bool]] = [
    ("describe_cohort", {"genes": 2000}, True),
    ("describe_cohort", {"search": identifier(3)}, True),
    ("kaplan_meier", OS, True),
    ("kaplan_meier", OS | {"group": "clinical:age"}, True),
    ("kaplan_meier", OS | {"group": "clinical:age", "cut": "levels"}, False),
    ("logrank", OS | {"group": "clinical:age", "cut": "levels"}, False),
    ("cox", OS | {"covariates": ["clinical:age", "imaging:tls_density"]}, True),
    ("cox", OS | {"covariates": ["clinical:age"], "strata": "clinical:age"}, False),
    ("screen", OS | {"features": ["clinical:age", "imaging:tls_density"]}, True),
    ("concordance", OS | {"risk": "clinical:age"}, True),
    ("signature_scores", {}, False),
    ("kaplan_meier", OS | {"filters": ONE}, False),
    ("cox", OS | {"covariates": ["imaging:tls_density"], "filters": ONE}, False),
    ("kaplan_meier", OS | {"group": identifier(3)}, False),
    ("kaplan_meier", {"endpoint": "clinical:patient"}, False),
    ("kaplan_meier", OS | {"filters": [{"variable": "patient", "op": "eq", "value": "x"}]}, False),
    ("kaplan_meier", OS | {"data_root": "clinical.csv"}, False),
    ("describe_cohort", {"cohort": "clinical.csv"}, False),
    ("preview", {"slide": "clinical.csv"}, False),
]
"""Tool, arguments, and whether the call has to succeed, so that there is something to search."""


@pytest.mark.slow
def test_no_tool_over_http_tells_an_identifier_or_a_patients_value(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_canaries(tmp_path / "in")

    async def main(url: str) -> list[tuple[str, bool, str]]:
        answers = []
        async with http(url) as client:
            for tool, arguments, _ in CALLS:
                given = {"cohort": "."} | arguments if tool != "preview" else arguments
                answer = await client.call_tool(tool, given)
                answers.append((f"{tool} {arguments}", answer.is_error, answer.model_dump_json()))
            listed = (await client.list_resources()).resources
            for item in listed:
                read = await client.read_resource(item.uri)
                answers.append((str(item.uri), False, read.model_dump_json()))
        return answers

    with http_server(tmp_path) as url:
        answers = asyncio.run(main(url))
    asked = json.dumps([call[1] for call in CALLS])
    looked_for = [canary for canary in CANARIES if canary not in asked]
    assert len(looked_for) > 300
    told = {what: [item for item in looked_for if item in text] for what, _, text in answers}
    assert {what: found for what, found in told.items() if found} == {}
    for (what, failed, text), (_, _, must) in zip(answers, CALLS, strict=False):
        assert not (must and failed), (what, text[:500])
        assert failed or "filters" not in what, f"one patient was described: {what}"
