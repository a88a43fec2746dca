"""The policy: what honest analyses say passes, the rest is refused with a reason."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.policy import BESIDE, check

HONEST = '''
"""An analysis."""
from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from lifelines import CoxPHFitter
from scipy.stats import fisher_exact
from validation.analysis.analysis import Analysis


@dataclass
class Group:
    name: str

    def __len__(self) -> int:
        return 2


def main(inputs: Path, out: Path) -> None:
    analysis = Analysis.open(inputs)
    table = analysis.table
    table["x"] = np.where(table["age"] > 60, "old", "young")
    (out / "x.json").write_text(json.dumps({"n": len(table)}))
    with open(out / "y.txt", "w") as sink:
        sink.write(str(getattr(table, "shape")))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
'''


def test_an_honest_analysis_passes() -> None:
    assert check(HONEST) == []


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import os", "`os`"),
        ("import numpy.ctypeslib", "ctypeslib"),
        ("from . import x", ""),
        ("__import__('os')", "`__import__`"),
        ("eval('1')", "`eval`"),
        ("().__class__.__base__.__subclasses__()", "__subclasses__"),
        ("getattr(x, '__cl' + 'ass__')", ""),
        ("getattr(x, '__class__')", "__class__"),
        ("x = '__subclasses__'", "__subclasses__"),
        ("import sys\nsys.modules['os']", "modules"),
        ("import sys\nsys._getframe()", "_getframe"),
        ("import pandas as pd\npd.read_pickle('x')", ""),
        ("import numpy as np\nnp.load('x', allow_pickle=True)", "allow_pickle"),
        ("import pathlib\npathlib.os.system('x')", "os"),
        ("from pathlib import os", "os"),
        ("globals()['x']", "`globals`"),
        ("def f(:", ""),
        ("x = 1\n" * 200_000, ""),
        ("-" * 50_000 + "1", ""),
    ],
)
def test_what_would_become_part_of_an_installation_is_plain(code: str, says: str) -> None:
    found = check(code, sandboxed=False)
    assert found
    assert says in " ".join(item.message for item in found)
    assert all(item.line >= 1 for item in found)


IDIOMS = """
import os; os.makedirs("out", exist_ok=True)
import glob; glob.glob("*.csv")
import hashlib; hashlib.sha256(b"x")
import subprocess, pickle, multiprocessing, concurrent.futures, urllib.parse, tempfile, shutil
import joblib; joblib.Parallel(n_jobs=1)
import patsy; patsy.dmatrix("x", {"x": [1]})
from pathlib import os
import sys; sys.modules["os"]
import importlib; importlib.import_module("numpy")
setattr(x, "age", 1)
vars(x); locals(); globals()
input = open("x.csv"); print(input)
input = lambda name: name; input("x")
def run(input): input("x")
def input(name): return input("x")
from json import loads as input; input("3")
from mpl_toolkits.mplot3d import Axes3D; from PIL import Image; import dateutil, pytz, packaging
df.os.mean()
df["os"]; df.modules; df.socket
getattr(df, name)(0)
type(x).__name__; x.__class__; x.__dict__
eval("1 + 1")
df.eval("a > b"); df.query("os > 3")
import ctypes; import inspect; import gc; import secrets; import uuid
import numpy as np; np.load("x.npy", allow_pickle=True)
import pandas as pd; pd.read_pickle("x")
""".strip().splitlines()


@pytest.mark.parametrize("code", IDIOMS)
def test_what_works_in_the_sandbox_passes(code: str) -> None:
    assert check(code) == []


def test_what_comes_with_the_allowed_modules_is_there() -> None:
    assert [name for name in BESIDE if find_spec(name) is None] == []


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import socket", "network"), ("from urllib import request", "network"),
        ("import urllib.request", "network"), ("import http.client as h", "network"),
        ("import tkinter", "display"), ("import pip", "installed"),
        ("import requests", "`requests` is not installed"), ("from rpy2 import x", "`rpy2`"),
        ("x = input()", "`input()`"), ("breakpoint()", "`breakpoint()`"),
        ("from . import x", "relative"), ("def f(:", "not valid"),
    ],
)  # fmt: skip
def test_what_cannot_work_in_the_sandbox_is_named(code: str, says: str) -> None:
    (found,) = check(code)
    assert says in found.message


@given(st.text(max_size=300))
def test_any_text_is_judged_without_an_exception(text: str) -> None:
    check(text)
