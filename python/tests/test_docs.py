"""The documents' programs run, the bench measures, the types are complete."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

import pinfold
from common import LIMIT_S, ROOT, needs_numpy


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=LIMIT_S * 3
    )


class Documents(unittest.TestCase):
    @needs_numpy
    def test_the_programs_of_the_pages_run(self):
        pages = [ROOT / "docs" / "python.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
        count = 0
        for page in pages:
            for program in re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.S | re.M):
                count += 1
                with self.subTest(f"{page.name}: {program.splitlines()[0]}"):
                    ran = run("-c", program)
                    self.assertEqual((ran.returncode, ran.stderr), (0, ""), program)
        self.assertGreaterEqual(count, 12)

    def test_the_book_has_all_pages_and_no_others(self):
        docs = ROOT / "docs"
        named = set(re.findall(r"\]\(([^)]+\.md)\)", (docs / "SUMMARY.md").read_text()))
        pages = {str(page.relative_to(docs)) for page in docs.rglob("*.md")} - {"SUMMARY.md"}
        # The figures are reached from their own table.
        pages = {page for page in pages if not page.startswith("measurements/")}
        self.assertEqual(named - {"measurements/README.md"}, pages)
        for page in docs.rglob("*.md"):
            for link in re.findall(r"\]\(([^):#]+\.md)[)#]", page.read_text()):
                self.assertTrue((page.parent / link).exists(), f"{page}: {link}")

    def test_what_the_page_names_is_there(self):
        page = (ROOT / "docs" / "python.md").read_text()
        for name in re.findall(r"`pinfold\.(\w+)`", page):
            self.assertTrue(hasattr(pinfold, name), name)


class Types(unittest.TestCase):
    def test_the_stubs_have_what_the_module_has(self):
        folder = Path(pinfold.__file__).parent
        self.assertTrue((folder / "py.typed").exists())
        stubs = ast.parse((folder / "_native.pyi").read_text())
        classes = {node.name: node for node in stubs.body if isinstance(node, ast.ClassDef)}
        native = {name: it for name, it in vars(pinfold._native).items() if inspect.isclass(it)}
        self.assertEqual(set(classes), set(native))
        for name, it in native.items():
            said = {node.name for node in classes[name].body if isinstance(node, ast.FunctionDef)}
            there = {attribute for attribute in vars(it) if not attribute.startswith("_")}
            self.assertEqual({one for one in said if not one.startswith("_")}, there, name)
            for attribute in there:
                self.assertTrue(getattr(it, attribute).__doc__, f"{name}.{attribute}")

    def test_all_that_is_public_is_documented(self):
        for name in pinfold.__all__:
            if name != "__version__":
                self.assertTrue(inspect.getdoc(getattr(pinfold, name)), name)


class Bench(unittest.TestCase):
    def test_it_measures_and_draws(self):
        with tempfile.TemporaryDirectory() as folder:
            plot = Path(folder) / "plot.svg"
            options = ["--sizes", "1000", "200000", "--rounds", "3", "--each", "4"]
            ran = run("-m", "pinfold.bench", *options, "--json", "--svg", str(plot))
            self.assertEqual(ran.returncode, 0, ran.stderr)
            facts = json.loads(ran.stdout)["facts"]
            drawn = ElementTree.parse(plot).getroot()
        names = {one["subject"] for one in facts}
        for name in ("pinfold handoff", "multiprocessing.Queue", "shared_memory", "Unix socket"):
            self.assertIn(name, names)
        self.assertNotEqual("ZeroMQ" in names, "ZeroMQ: not installed" in ran.stderr)
        self.assertEqual(len(facts), 2 * len(names))
        for one in facts:
            self.assertEqual(one["exchanges"], 12)
            self.assertLessEqual(one["median_us"], one["p99_us"])
            self.assertGreater(one["mean_us"], 0)
        self.assertEqual(
            [one["times_first"] for one in facts if one["subject"] == "pinfold handoff"], [1, 1]
        )
        circles = drawn.findall(".//{http://www.w3.org/2000/svg}circle")
        self.assertEqual(len(circles), len(facts))

    @needs_numpy
    def test_the_works_with_goals_are_measured_and_checked(self):
        """All of them, each short: every way of each, by as many exchanges as are asked for."""
        program = """
import sys
from pinfold.bench import __main__ as main, goals, requests, ways
ways.Array.length, ways.Object.length, requests.Requests.count = 1000, 8192, 100
goals.ROWS[:] = [row._replace(each=3) for row in goals.ROWS]
sys.argv = ["pinfold.bench", "--goals", "--rounds", "2", "--json"]
sys.exit(main.main())
"""
        ran = run("-c", program)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        rows = json.loads(ran.stdout)["goals"]
        self.assertEqual(len(rows), 4)
        missing = ran.stderr.count(": not installed")
        self.assertEqual(sum(len(row["ways"]) for row in rows) + missing, 14)
        for way in (way for row in rows for way in row["ways"]):
            self.assertEqual(way["exchanges"], 6, way)
            self.assertGreater(way["mean_us"], 0)
            self.assertLessEqual(way["median_us"], way["p99_us"])

    def test_wrong_data_and_goals_are_found(self):
        from pinfold.bench import goals, ways

        row = goals.ROWS[0]._replace(rivals={ways.PipeWords: 3.0})
        there = [ways.Words.__new__(row.ours), ways.Words.__new__(ways.PipeWords)]
        for ours, met in ((1.0, True), (2.0, False)):
            fact = goals.facts(row, there, [[[ours] * 2] * 3, [[4.0] * 2] * 3])
            self.assertEqual([way["met"] for way in fact["ways"]], [None, met])
            self.assertEqual(fact["ways"][1]["times"], 4.0 / ours)
            self.assertIn("missed" if not met else "8 B", goals.shown(fact))

        class Wrong(ways.PipeWords):
            def answers(self, take, give):
                super().answers(take, lambda word: give(word[::-1]))

        with self.assertRaisesRegex(RuntimeError, "went wrong"):
            goals.measure(row._replace(ours=Wrong, rivals={}, each=1), 1, print)

    def test_a_payload_that_is_not_right_is_found(self):
        from pinfold.bench.payload import Payload, check

        memory = bytearray(1000)
        payload = Payload(memory)
        payload.number(77)
        self.assertEqual(check(memory), 77)
        for at in (0, 7, 8, 500, 991, 992, 999):
            memory[at] ^= 1
            self.assertEqual(check(memory), -1, at)
            memory[at] ^= 1

    def test_the_numbers_are_of_all_times(self):
        from pinfold.bench.measure import summary

        rounds = [[float(n) for n in range(1, 51)], [float(n) for n in range(51, 101)]]
        base = [[10.0] * 50, [20.0] * 50]
        facts = summary("x", 1000, rounds, base)
        self.assertEqual(
            (facts["mean_us"], facts["median_us"], facts["p99_us"]), (50.5, 50.5, 99.0)
        )
        self.assertAlmostEqual(facts["times_first"], (25.5 / 10 + 75.5 / 20) / 2)


if __name__ == "__main__":
    unittest.main()
