"""Printouts of the console: as a file, drawn as by a label printer, and read by a scanner."""

from __future__ import annotations

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from xml.etree import ElementTree as ET

from tests.support.browser import expect
from tests.support.machine import installed

POINTS_PER_MM = 72 / 25.4


def pdf_of(page, folder):
    """Print the page; return the file."""
    expect(page.get_by_role("dialog")).to_be_hidden()
    file = folder / "print.pdf"
    page.pdf(path=file, prefer_css_page_size=True)
    return file


def run(program, *arguments, package="poppler-utils", statuses=(0,)):
    """Run a program that must end with one of these statuses; return its output."""
    command = [installed(program, package=package), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in statuses, done.stderr
    return done.stdout


def scanned(file):
    """Return what a scanner reads on each page of a file from a label printer."""
    run("pdftoppm", "-r", "203", "-mono", file, file.with_suffix(""))
    pages = sorted(file.parent.glob("print-*.pbm"))
    # 4 is a page without a code.
    scan = partial(run, "zbarimg", "--quiet", "--nodbus", package="zbar-tools", statuses=(0, 4))
    with ThreadPoolExecutor(2) as threads:
        texts = list(threads.map(scan, pages))
    return [sorted(re.findall(r"^CODE-128:(\d+)$", text, re.MULTILINE), key=int) for text in texts]


def words(file):
    """Return each word of a file's pages, with its left, top, right and bottom in mm."""
    tree = ET.fromstring(run("pdftotext", "-bbox", file, "-"))
    return [
        (
            word.text,
            *(float(word.get(side)) / POINTS_PER_MM for side in ("xMin", "yMin", "xMax", "yMax")),
        )
        for word in tree.iter("{http://www.w3.org/1999/xhtml}word")
    ]
