"""The privacy border: what a failed run may tell a model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agents.coding.scrub import describe_failure, mask, vocabulary

PROGRAM = """\
import pandas as pd
table = analysis.table
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


def fed_back(error: str, stdout: str = "", withheld: tuple[str, ...] = ()) -> str:
    stderr = TRACEBACK.format(error=error)
    return "\n".join(describe_failure(stderr, stdout, PROGRAM, withheld=withheld))


def test_the_failing_line_and_the_kind_of_error_reach_the_model() -> None:
    said = fed_back("KeyError: 'clinical:age'")
    assert 'line 3 of the program: ages = table["clinical:age"].astype(int)' in said
    assert "KeyError: 'clinical:age'" in said


def test_a_common_message_stays_readable_with_its_numbers_masked() -> None:
    said = fed_back("ValueError: Length of values (412) does not match length of index (410)")
    assert "Length of values (#) does not match length of index (#)" in said


def test_a_patient_identifier_in_a_message_is_masked() -> None:
    for secret in ("TCGA-XF-A9SX", "TCGA-XF-A9SX-01A", "P0017", "MRN 4471123", "Anna Schmidt",
                   "1953-04-17", "63.482", "61-year-old Elsa"):  # fmt: skip
        for message in (f"'{secret}'", secret, f"no row for {secret} in the table", f'"{secret}"'):
            said = fed_back(f"KeyError: {message}")
            for word in secret.split():
                if word.casefold() not in ("61-year-old",):
                    assert word not in said, (message, said)


def test_rows_printed_by_the_program_are_withheld_whole() -> None:
    rows = "\n".join(f"P{i:04d}  {50 + i}  MALE  stage III" for i in range(40))
    said = fed_back("KeyError: 'x'", stdout=rows)
    assert "MALE" not in said and "P0001" not in said
    assert "more lines of output are withheld" in said


def test_rows_smuggled_into_an_error_message_are_withheld() -> None:
    for message in (
        "63 71 58 49 66 80 52 61 70",
        "[63, 71, 58, 49, 66, 80, 52, 61, 70]",
        "MALE FEMALE MALE MALE FEMALE FEMALE MALE MALE MALE FEMALE".replace(" ", "-x- "),
        "age=63;sex=M;os=12.4;age=71;sex=F;os=3.2",
        "{'P0001': 63, 'P0002': 71}",
        "63\t71\t58",
    ):
        said = fed_back(f"ValueError: {message}")
        assert not any(value in said for value in ("63", "71", "12.4")), said


def test_rows_smuggled_in_as_a_traceback_are_withheld() -> None:
    forged = 'File "P0001 aged 63, stage III/analysis.py", line 2, in Elsa_Maier\n63: stage III\n'
    said = "\n".join(describe_failure(forged + "ValueError: x", "", PROGRAM))
    assert "Elsa" not in said and "63" not in said and "stage" not in said
    assert "line 2 of the program: table = analysis.table" in said


def test_rows_smuggled_in_as_an_error_name_are_withheld() -> None:
    said = fed_back("PatientElsaMaierAged63Error: stage")
    assert "Maier" not in said
    assert "P0001P0002P0003Error" not in fed_back("P0001P0002P0003Error: x")


def test_a_known_identifier_is_masked_even_if_the_program_says_it() -> None:
    said = fed_back("KeyError: 'analysis'", withheld=("analysis",))
    assert "KeyError: 'analysis'" not in said


def test_a_second_line_of_a_message_is_withheld() -> None:
    said = fed_back("ValueError: bad values\nP0001 63 MALE\nP0002 71 FEMALE")
    assert "MALE" not in said and "P0001" not in said
    assert "more lines of output are withheld" in said


def test_numbers_of_the_program_itself_may_be_repeated() -> None:
    assert mask("expected 12 got 63", vocabulary("x = 12")) == "expected 12 got #"


@given(st.lists(st.integers(100, 999_999).map(str), min_size=1, max_size=30))
def test_no_number_of_three_digits_or_more_ever_passes(values: list[str]) -> None:
    said = fed_back("ValueError: " + " and ".join(values), stdout="\n".join(values))
    words = said.replace("#", " ").split()
    assert not set(values) & set(words)


@given(st.text(min_size=1, max_size=400))
def test_any_text_gives_short_printable_lines(text: str) -> None:
    lines = describe_failure(text, text, text[:100])
    assert len(lines) <= 12
    assert all(len(line) < 400 and "\n" not in line for line in lines)
