"""List the contenders, with what is known of each from its documentation.

A contender must install on Python 3.11 from packages that are pinned by hash. PySpark 3.5, which Tumult Analytics
needs, and ``antlr4-python3-runtime`` 4.9.3, which SmartNoise SQL needs, have no wheels, and are built from source.
Tumult Analytics also needs Java 8, 11 or 17, which is not installed with it.

SmartNoise Synthesizers (``smartnoise-synth`` 1.0.8), which needs SmartNoise SQL, PyTorch and ``mbi``, is not tried.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
ENVIRONMENTS = ROOT / "build" / "peers"
USER_CODE = re.compile(r"# user code begins\n(.*)# user code ends", re.DOTALL)


@dataclass(frozen=True)
class Contender:
    """Software that publishes flows.

    Attributes:
        name: name in the tables.
        program: name of its program in ``scripts``.
        package: package whose version is recorded.
        environment: name of its environment in ``build/peers``; None for this project's own.
        options: what is chosen among what the software offers.
        noise: what is asked of a program that offers several: the noise (``gaussian`` or ``laplace``), the algorithm,
            the neighbours (``bounded`` or ``unbounded``), or an option.
        survives_restart: whether the software stores what was spent, so that a new process cannot spend it again.
        replays: whether a release that was interrupted, or is asked for again, gives the same noisy values.
    """

    name: str
    program: str
    package: str
    environment: str | None
    options: str
    noise: str = ""
    survives_restart: bool = False
    replays: bool = False

    @property
    def script(self) -> Path:
        """Return the program of this contender."""
        return FOLDER / "scripts" / f"{self.program}.py"

    @property
    def python(self) -> Path:
        """Return the Python of its environment."""
        return Path(sys.executable) if self.environment is None else ENVIRONMENTS / self.environment / "bin" / "python"

    @property
    def lines(self) -> int:
        """Return the lines that a user writes, without comments and empty lines."""
        (code,) = USER_CODE.findall(self.script.read_text(encoding="utf-8"))
        return sum(1 for line in code.splitlines() if line.strip() and not line.strip().startswith("#"))

    @property
    def environment_variables(self) -> dict[str, str]:
        """Return the variables of the process.

        This project is on the path of its own program alone. Spark starts the Python of the environment.
        """
        own = {"PYTHONPATH": str(ROOT)} if self.environment is None else {"PYSPARK_PYTHON": str(self.python)}
        left_out = ("PYTHONPATH", "VIRTUAL_ENV", "SPARK_HOME", "PYSPARK_DRIVER_PYTHON")
        return {name: value for name, value in os.environ.items() if name not in left_out} | own

    def version(self) -> str:
        """Return the installed version of the package; an empty text if it is not installed."""
        if not self.python.exists():
            return ""
        code = f"import importlib.metadata as m; print(m.version({self.package!r}))"
        done = subprocess.run(  # noqa: S603  # the Python of an environment
            [str(self.python), "-c", code],
            capture_output=True,
            text=True,
            check=False,
            env=self.environment_variables,
        )
        return done.stdout.strip()


_GAUSSIAN = "a query for each level, discrete Gaussian noise, equal shares of rho"
_LAPLACE = "a query for each level, discrete Laplace noise, equal shares of epsilon; delta is 0"
_RECORDS = "levels counted from synthetic records; discrete Gaussian noise; intervals of measured tables"
_INFTDA = "InfTDA, both ends in turn, discrete Gaussian noise at the same rho; no intervals; "
_BOUNDED = "another promise: one trip is replaced, the total is exact"
_CENSORED = "a query for each level, Laplace noise, equal shares of epsilon and delta; pairs below a threshold are cut"
_PUBLIC = "counts by pandas, Laplace noise for all public pairs, no threshold, equal shares of epsilon; delta is 0"

_FEW = "tree both, discrete Laplace noise; delta is 0"

CONTENDERS = (
    Contender(
        "ours",
        "ours",
        "od-release",
        None,
        "inftda_refined; the example tries a restart and a replay with a ledger",
        "",
        True,
        True,
    ),
    Contender(
        "ours_totals",
        "ours",
        "od-release",
        None,
        "as ours, and area totals have a tenth of the budget, as od-release init declares from 100 zones on",
        "totals",
        True,
        True,
    ),
    Contender(
        "ours_auto", "ours", "od-release", None, "as ours, with the estimate auto, an option", "auto", True, True
    ),
    Contender("ours_laplace", "ours", "od-release", None, f"as ours; {_FEW}", "laplace", True, True),
    Contender(
        "ours_laplace_totals",
        "ours",
        "od-release",
        None,
        f"as ours; {_FEW}, and area totals with 18 % of epsilon, as od-release init declares from 100 zones on",
        "laplace_totals",
        True,
        True,
    ),
    Contender(
        "ours_laplace_auto",
        "ours",
        "od-release",
        None,
        "as ours_laplace_totals, with the estimate auto, an option",
        "laplace_auto",
        True,
        True,
    ),
    Contender("ours_bounded", "ours", "od-release", None, f"as ours; {_BOUNDED}", "bounded", True, True),
    Contender("opendp_gaussian", "opendp_levels", "opendp", "opendp", _GAUSSIAN, "gaussian"),
    Contender("opendp_laplace", "opendp_levels", "opendp", "opendp", _LAPLACE, "laplace"),
    Contender(
        "pipeline_dp",
        "pipeline_dp_levels",
        "pipeline-dp",
        "pipeline_dp",
        "a count for each level, Laplace noise, equal shares of epsilon; no delta is spent",
    ),
    Contender("opendp_fixed", "opendp_mbi", "opendp", "opendp", f"Fixed, the zones' table; {_RECORDS}", "fixed"),
    Contender("opendp_mst", "opendp_mbi", "opendp", "opendp", f"MST of zones; {_RECORDS}", "mst"),
    Contender("opendp_aim", "opendp_mbi", "opendp", "opendp", f"AIM of zones, no rho for keys; {_RECORDS}", "aim"),
    Contender(
        "opendp_aim_levels",
        "opendp_mbi",
        "opendp",
        "opendp",
        f"AIM, a column for each level of each end, defaults; {_RECORDS}",
        "aim_levels",
    ),
    Contender(
        "inf_tda",
        "inf_tda",
        "inf-tda",
        "inf_tda",
        f"{_INFTDA}bounded neighbours alone, so an area of no trips completes a public number of records",
        "unbounded",
    ),
    Contender("inf_tda_bounded", "inf_tda", "inf-tda", "inf_tda", f"{_INFTDA}{_BOUNDED}", "bounded"),
    Contender("smartnoise_sql", "smartnoise_sql_levels", "smartnoise-sql", "smartnoise_sql", _CENSORED),
    Contender("smartnoise_sql_public", "smartnoise_sql_public", "smartnoise-sql", "smartnoise_sql", _PUBLIC),
    Contender("tumult_gaussian", "tumult_levels", "tmlt.analytics", "tumult", _GAUSSIAN, "gaussian"),
    Contender("tumult_laplace", "tumult_levels", "tmlt.analytics", "tumult", _LAPLACE, "laplace"),
)
