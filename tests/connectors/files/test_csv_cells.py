"""Names of hosts that a spreadsheet would take for formulas are put behind an apostrophe in every CSV."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from opicflow.connectors.files.csv_cells import harmless_cell
from opicflow.connectors.files.rank_writer import write_table
from opicflow.connectors.files.site_lists import SiteList, write_site_list
from opicflow.pipelines.results.exports.export_job import ExportJob
from opicflow.pipelines.results.exports.plain_tables import csv_table
from opicflow.pipelines.results.exports.result_rows import Rows
from support.paths import TOP

FORMULA = '=webservice("http"&char(58)&"//a.example")'
QUOTED = '"\'=webservice(""http""&char(58)&""//a.example"")"'


def test_every_module_that_writes_csv_makes_its_cells_harmless() -> None:
    files = [file for top in ("connectors", "pipelines", "schemas") for file in (TOP / top).rglob("*.py")]
    texts = {file.relative_to(TOP).as_posix(): file.read_text("utf-8") for file in files}
    writers = {name for name, text in texts.items() if re.search(r"csv\.(DictW|w)riter\(|write_csv\(", text)}
    of_crawls = writers - {"pipelines/lab/experiments/tables.py"}  # whose names are those of experiments
    assert {name for name in of_crawls if "harmless_cell" not in texts[name]} == set() and len(of_crawls) == 2


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@a", "\tx", "\rx"])
def test_only_texts_that_begin_like_formulas_are_changed(text: str) -> None:
    assert harmless_cell(text) == "'" + text and harmless_cell(f"a{text}") == f"a{text}"
    assert harmless_cell(-1.5) == -1.5 and harmless_cell("") == "" and harmless_cell(None) is None


def test_tables_of_ranks_lists_of_sites_and_exports_hold_no_formulas(tmp_path: Path) -> None:
    write_table(tmp_path / "ranks.csv", [{"host": [FORMULA, "b.example"], "importance": np.array([-0.5, 0.5])}])
    assert (tmp_path / "ranks.csv").read_text() == f"host,importance\n{QUOTED},-0.5\nb.example,0.5\n"
    write_site_list(tmp_path / "sites.csv", "tranco", SiteList([FORMULA], [1.0]))
    assert (tmp_path / "sites.csv").read_text() == f"1,{QUOTED}\n"
    rows = Rows("importance", lambda: iter([[(FORMULA, -1.0)]]), chosen=("url", "score"))
    assert b"".join(csv_table(ExportJob(rows, "", routing="none"))).decode() == f"url,score\r\n{QUOTED},-1.0\r\n"
