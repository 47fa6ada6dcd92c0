"""The pages in docs/python, and others with Python in them, do what they show, and the names in them exist."""

import doctest
import inspect
import re
import subprocess
import sys

import pytest
from conftest import ROOT

import uopc
from uopc import Tensor, kernelize, nn

PAGES = sorted((ROOT / "docs" / "python").glob("*.md"))
PAGES += [ROOT / "docs" / "autodiff.md", ROOT / "docs" / "data.md", ROOT / "docs" / "diagnosis.md"]
EXAMPLES = sorted((ROOT / "crates" / "uopc-py" / "examples").glob("*.py"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")


def test_there_are_pages_and_examples():
    assert {page.name for page in PAGES} >= {"README.md", "chapter.md", "coming-from.md"}
    assert EXAMPLES


@pytest.mark.parametrize("page", PAGES, ids=[p.name for p in PAGES])
def test_the_code_of_a_page_gives_what_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    assert BLOCK.search(text)
    names = {}
    for block in BLOCK.finditer(text):
        line = text[: block.start(1)].count("\n")
        code = block.group(1)
        if ">>>" not in code:
            exec(compile("\n" * line + code, str(page), "exec"), names)
            continue
        example = doctest.DocTestParser().get_doctest(code, names, page.name, str(page), line)
        report = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        runner.run(example, out=report.append, clear_globs=False)
        names.update(example.globs)
        assert not runner.failures, "".join(report)


OWNERS = {
    "uopc": uopc,
    "Tensor": Tensor,
    "nn": nn,
    "kernelize": kernelize,
    "Module": nn.Module,
    "t": Tensor,
    "w": Tensor,
    "x": Tensor,
    "loss": Tensor,
    "opt": nn.AdamW,
    "module": nn.Module,
    "u": uopc.uop.UOp,
}


def uopcs_column(page):
    """The cells of the last column of tables whose head says uopc."""
    head = None
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if not line.startswith("|"):
            head = None
        elif head is None:
            head = cells
        elif head[-1] == "uopc" and set(line) - set("|-: "):
            yield cells[-1]


@pytest.mark.parametrize("page", PAGES, ids=[p.name for p in PAGES])
def test_names_in_tables_exist(page):
    found = 0
    for cell in uopcs_column(page):
        for span in SPAN.findall(cell):
            for owner, name in re.findall(r"\b([A-Za-z]+)\.([A-Za-z_]\w*)", span):
                if owner in OWNERS:
                    found += 1
                    assert hasattr(OWNERS[owner], name), f"{page.name}: {span}"
    assert found > 20 or page.name != "coming-from.md"


@pytest.mark.parametrize("file", EXAMPLES, ids=[e.name for e in EXAMPLES])
def test_an_example_runs(file, tmp_path):
    done = subprocess.run([sys.executable, str(file)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()
    # Its docstring shows what it prints, as far as that does not depend on the machine.
    shown = inspect.cleandoc(re.match(r'"""(.*?)"""', file.read_text(), re.DOTALL).group(1))
    last = shown.splitlines()[-1].strip()
    assert last in done.stdout, f"{file.name} does not print: {last}\n{done.stdout}"
