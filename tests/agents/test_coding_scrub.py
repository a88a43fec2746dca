"""The privacy border: what a failed run may tell a model."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.coding.scrub import ERROR_NAMES, HINTS, describe_failure

PROGRAM = """\
import pandas as pd
table = pd.read_parquet("table.parquet")
ages = table["clinical:age"].astype(int)
raise ValueError(ages)
"""

TRACEBACK = """\
Traceback (most recent call last):
  File "/work/analysis.py", line 3, in <module>
    ages = table["clinical:age"].astype(int)
  File "/opt/sage/site0/pandas/core/generic.py", line 6643, in astype
    new_data = self._mgr.astype(dtype=dtype)
{error}
"""
SECRETS = ("TCGA-XF-A9SX", "P0017", "MRN 4471123", "Anna Schmidt", "1953-04-17", "63.482", "stage")


def fed_back(error: str, stdout: str = "") -> str:
    return "\n".join(describe_failure(TRACEBACK.format(error=error), stdout, PROGRAM))


def test_the_failing_line_and_the_kind_of_error_reach_the_model() -> None:
    said = fed_back("KeyError: 'clinical:age'")
    assert 'line 3 of the program: ages = table["clinical:age"].astype(int)' in said
    assert said.splitlines()[1] == "KeyError"


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        ("ValueError: could not convert string to float: 'MALE'", "read as numbers"),
        ("ValueError: Length of values (412) does not match length of index (410)", "differ in"),
        ("TypeError: Object of type int64 is not JSON serializable", "convert numpy numbers"),
        ("numpy.linalg.LinAlgError: Singular matrix", "did not converge"),
        ("ModuleNotFoundError: No module named 'rpy2'", "a missing module"),
    ],
)
def test_a_known_message_is_told_in_our_words(error: str, hint: str) -> None:
    said = fed_back(error)
    assert hint in said
    assert not [word for word in ("412", "410", "MALE", "int64", "rpy2") if word in said]


@pytest.mark.parametrize("secret", SECRETS)
def test_nothing_of_a_message_is_repeated(secret: str) -> None:
    for message in (f"'{secret}'", secret, f"no row for {secret} in the table", f'"{secret}"'):
        assert secret not in fed_back(f"KeyError: {message}")
        assert secret not in fed_back(f"could not convert string to float: {message}")


def test_rows_printed_by_the_program_are_withheld_whole() -> None:
    rows = "\n".join(f"P{i:04d}  {50 + i}  MALE  stage III" for i in range(40))
    said = fed_back("KeyError: 'x'", stdout=rows)
    assert "MALE" not in said and "P0001" not in said and "40" not in said
    assert said.endswith("its other output is withheld")


def test_the_name_of_an_error_cannot_carry_a_value() -> None:
    said = fed_back("__main__.AnnaSchmidtBornIn1953Error: x")
    assert "Anna" not in said and "an error of its own" in said


def test_a_traceback_that_the_program_made_up_quotes_only_its_own_text() -> None:
    forged = 'File "/work/analysis.py", line 63, in x\n  File "/work/analysis.py", line 2, in y\n'
    said = describe_failure(f"{forged}ValueError: 63 years", "", PROGRAM)
    assert said[0].startswith("line 2 of the program: table = ") and "63" not in "".join(said)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=200), st.text(max_size=200))
def test_whatever_is_printed_only_our_own_words_go_back(stderr: str, stdout: str) -> None:
    known = {hint for _, hint in HINTS} | ERROR_NAMES | {
        "an error of its own", "its other output is withheld"
    }  # fmt: skip
    for line in describe_failure(stderr, stdout, PROGRAM):
        name, _, hint = line.partition(": ")
        assert line in known or (name in known and hint in known) or line.startswith("line ")
