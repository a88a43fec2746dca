"""`sage doctor --probe` asks the model's server through the one HTTP client."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import sage
from tests.core.http_server import Answer, as_json, serving
from tests.warm import run_warm

HOUSE = Path(sage.__file__).parents[1]


def reasoner(url: str, folder: Path) -> dict[str, Any]:
    environment = {
        **os.environ, "PYTHONPATH": str(HOUSE), "SAGE_BASE_URL": url, "SAGE_API_KEY": "SECRET99",
    }  # fmt: skip
    done = run_warm(["doctor", "--probe", "--json"], cwd=folder, env=environment, timeout=120)
    assert "SECRET99" not in done.stdout + done.stderr
    found = json.loads(done.stdout)
    checks = found if isinstance(found, list) else found["checks"]
    return next(check for check in checks if check["what"] == "reasoner")


@pytest.mark.parametrize(
    ("answer", "state", "says"),
    [(as_json({"data": []}), "ok", ""), (Answer(b"no", 401), "broken", "401")],
    ids=["ok", "wrong key"],
)
def test_a_server_is_asked_once_with_the_key(
    answer: Answer, state: str, says: str, tmp_path: Path
) -> None:
    with serving() as services:
        services.routes["/v1/models"] = answer
        found = reasoner(f"{services.url}/v1", tmp_path)
        assert [seen.headers["authorization"] for seen in services.seen] == ["Bearer SECRET99"]
    assert found["state"] == state and says in found["found"]


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    found = reasoner("http://127.0.0.1:9/v1", tmp_path)
    assert found["state"] == "broken"
    assert "127.0.0.1:9" in found["found"]
    assert "base_url" in found["remedy"]
