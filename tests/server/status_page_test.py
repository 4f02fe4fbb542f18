"""The status page in a headless browser: what it draws is what the daemon says, as it changes. The
worker trains nothing (tests/server/testing/fake_worker.cc). SNUG_SCREENSHOT names a PNG to write.
"""

import os
import unittest

from tests.harness.browser import Browser
from tests.harness.fake_daemon import FakeDaemon

LONG = "steps=100000 step_ms=40"
MANY = 1000


class StatusPageTest(unittest.TestCase):
    def setUp(self):
        self.daemon = FakeDaemon("cpu:0=200MiB", settings="max_live_jobs: 2000\n")
        self.addCleanup(self.daemon.close)
        self.browser = Browser()
        self.addCleanup(self.browser.close)

    def open(self):
        self.browser.open(self.daemon.json("open")["url"])

    def count(self, selector):
        return self.browser.evaluate(f"document.querySelectorAll('{selector}').length")

    def test_a_job_from_its_first_steps_to_its_curve_and_plans(self):
        ended = self.daemon.submit_script("steps=20 step_ms=20")
        runs = [self.daemon.submit_script(LONG) for _ in range(3)]
        for name in runs:
            self.daemon.wait_step(name, 20)
        self.daemon.wait_state(ended, "SUCCEEDED")
        self.open()
        self.browser.wait_for("document.querySelectorAll('#jobs tr').length === 4")
        self.browser.wait_for("document.querySelectorAll('#devices .device svg').length === 1")
        self.assertEqual(self.browser.evaluate("location.search"), "")
        (device,) = self.daemon.json("devices")["devices"]
        promised = [each["job"] for each in device["reservations"]]
        titles = self.browser.evaluate(
            "[...document.querySelectorAll('#devices rect title')].map((t) => t.textContent)"
        )
        for name in promised:
            self.assertTrue(any(title.startswith(name) for title in titles), (name, titles))
        self.assertEqual(self.count("#timeline svg"), 1)
        first = self.progress(runs[0])
        self.browser.wait_for(f"{self.progress_script(runs[0])} > {first}")  # Live.
        self.click(runs[0])
        self.browser.wait_for("document.querySelectorAll('#curve svg path.curve').length === 2")
        self.browser.wait_for("document.querySelectorAll('#memory svg').length === 1")
        self.browser.wait_for("document.querySelectorAll('#plans tr.in-force').length === 1")
        plan = self.browser.evaluate("document.querySelector('#plans .in-force td').textContent")
        self.assertEqual(plan, self.daemon.job(runs[0])["memory"]["plan"])
        if "SNUG_SCREENSHOT" in os.environ:
            self.browser.screenshot(os.environ["SNUG_SCREENSHOT"])
        self.daemon.run("cancel", runs[0])
        self.browser.wait_for(f"{self.row(runs[0])}.textContent.includes('CANCELLED')")
        self.assertEqual(self.browser.errors, [])

    def row(self, name):
        found = "[...document.querySelectorAll('#jobs tr')]"
        return f"{found}.find((row) => row.textContent.startsWith('{name}'))"

    def progress_script(self, name):
        return f"{self.row(name)}.querySelector('progress').value"

    def progress(self, name):
        return self.browser.wait_for(self.progress_script(name))

    def click(self, name):
        self.browser.evaluate(f"{self.row(name)}.querySelector('button').click()")

    # What somebody calls a job is text, whatever it looks like.
    def test_a_name_is_no_markup(self):
        name = self.daemon.submit_script("steps=3 <img src=x onerror=document.title=1>")
        self.daemon.wait_state(name, "SUCCEEDED")
        self.open()
        self.browser.wait_for("document.querySelectorAll('#jobs tr').length === 1")
        self.assertIn("<img src=x", self.browser.evaluate("document.body.textContent"))
        self.assertEqual(self.count("#jobs img"), 0)
        self.assertEqual(self.browser.errors, [])

    def test_a_thousand_jobs(self):
        names = [self.daemon.submit_script(LONG, "priority=-1") for _ in range(3)]
        self.daemon.run("rerun", *names * (MANY // 3 - 1))
        self.open()
        self.browser.wait_for(f"document.querySelectorAll('#jobs tr').length > {MANY - 10}")
        self.browser.evaluate(
            "(() => { const box = document.getElementById('filter'); box.value = 'queued';"
            " box.dispatchEvent(new Event('input')); })()"
        )
        shown = "document.querySelectorAll('#jobs tr:not([hidden])').length"
        self.browser.wait_for(f"{shown} > {MANY // 2} && {shown} < {MANY - 3}")
        self.assertEqual(self.browser.errors, [])

    def test_without_a_session_there_is_no_page(self):
        self.browser.open(self.daemon.json("open")["url"].split("?")[0])
        self.browser.wait_for("document.body && document.body.textContent.includes('snug open')")
        self.assertEqual(self.count("#jobs"), 0)


if __name__ == "__main__":
    unittest.main()
