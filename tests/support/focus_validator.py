"""The official FOCUS validator, in an environment of its own: `make focus-validator` builds it, once.

Version 2.2.1 (https://github.com/finopsfoundation/focus-spec-validator) needs Python 3.12: older ones get a release that is
broken, newer ones find no wheel of the numpy that it wants. It ends with 0 also when rules fail, so its report is what
counts. Its environment lies in ~/.cache/splitplane, outside of any checkout, in a folder named by its pins.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

from tests.support.golang.programs import CACHE

PINS = Path(__file__).parent / "focus-validator.lock"
HOME = CACHE / "focus-validator" / hashlib.sha256(PINS.read_bytes()).hexdigest()[:16]
_COMPLETE = HOME / "complete"
COMMAND = "make focus-validator"
SUPPORTED = (
    *("ACCOUNT_NAMING_SUPPORTED", "MULTIPLE_PRICING_CATEGORIES_SUPPORTED", "NEGOTIATED_PRICING_SUPPORTED"),
    *(
        "MULTIPLE_SUB_ACCOUNT_TYPES_SUPPORTED",
        "MULTIPLE_BILLING_ACCOUNT_TYPES_SUPPORTED",
        "TAGGING_SUPPORTED",
    ),
    *("PUBLIC_PRICE_LIST_SUPPORTED", "USAGE_MEASUREMENT_SUPPORTED", "UNIT_PRICING_SUPPORTED"),
    *("SUB_ACCOUNT_SUPPORTED", "BILLING_BASED_ON_PROVISIONED_RESOURCES_SUPPORTED", "REGION_SUPPORTED"),
    *("RESOURCE_TYPE_ASSIGNMENT_SUPPORTED", "PRICING_BILLING_CURRENCY_DIFFERENCES_SUPPORTED"),
)
"""What our exports support, in the validator's words. Without them it leaves out two thirds of its rules."""
DEFECTIVE = {
    "InvoiceId-C-004-C": "the half of an alternative, judged alone: a charge may name its invoice",
    "InvoiceId-C-005-C": "the other half, judged alone: null is allowed until an invoice is issued",
}
"""Rules of the validator's model 1.2.0.1 that fail on correct files. No other rule may fail."""
_SECONDS_MAX = 240


def missing() -> str | None:
    """Why the validator cannot run here; None when it can."""
    if _COMPLETE.exists():
        return None
    if next(_pythons(), None) is None:
        return "the FOCUS validator needs Python 3.12, which is not here"
    return f"the FOCUS validator is not built; this builds it, once: {COMMAND}"


def judge(file: Path, work: Path) -> tuple[int, set[str]]:
    """How many rules passed, and which ones failed, without the defective ones. Raises if there is no report."""
    rules = work / "focus_validator" / "rules"  # The validator reads this file from its working folder.
    rules.mkdir(parents=True)
    (currencies,) = HOME.glob("lib/python3.12/site-packages/focus_validator/rules/currency_codes.csv")
    shutil.copy(currencies, rules)
    report = work / "report.xml"
    subprocess.run(
        [
            str(_program().absolute()),
            *("--data-file", str(file.absolute()), "--validate-version", "1.2", "--block-download"),
            *("--applicability-criteria", ",".join(SUPPORTED)),
            *("--output-type", "unittest", "--output-destination", str(report.absolute())),
        ],
        cwd=work,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        check=True,
        capture_output=True,
        timeout=_SECONDS_MAX,
    )
    cases = list(ET.parse(report).getroot().iter("testcase"))
    failed = {case.attrib["name"].split(" ")[0] for case in cases if case.find("failure") is not None}
    passed = sum(case.find("failure") is None and case.find("skipped") is None for case in cases)
    return passed, failed - DEFECTIVE.keys()


def build() -> None:
    """Install it where it is missing. Without Python 3.12 nothing is done, and its test says so."""
    os.environ.pop("PYTHONPATH", None)  # The environment is the validator's own.
    python = next(_pythons(), None)
    if python is None:
        sys.stdout.write(
            "there is no Python 3.12, so the FOCUS validator is left out. Install python3.12, or: pyenv install 3.12\n"
        )
    elif missing() is not None:
        sys.stdout.write("installing the FOCUS validator (about a minute, once)\n")
        shutil.rmtree(HOME, ignore_errors=True)
        subprocess.run([python, "-m", "venv", HOME], check=True)
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        subprocess.run([HOME / "bin" / "python", *install, "-r", PINS], check=True)
        _COMPLETE.touch()


def _program() -> Path:
    return HOME / "bin" / "focus-validator"


def _pythons() -> Iterator[str]:
    """Interpreters of Python 3.12 that start: one of pyenv's may be on the path without being chosen."""
    on_path = shutil.which("python3.12")
    found = [] if on_path is None else [on_path]
    found += map(str, sorted(Path.home().glob(".pyenv/versions/3.12*/bin/python3.12")))
    for python in found:
        version = subprocess.run([python, "--version"], capture_output=True, text=True, check=False).stdout
        if version.startswith("Python 3.12."):
            yield python


if __name__ == "__main__":
    build()
