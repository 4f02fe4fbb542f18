"""deploy/prometheus, deploy/grafana and the compose file: rules do what they say, every query of
every board finds series of a loaded daemon, and every file that is named is there.
"""

import json
import math
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.parse
import urllib.request

import yaml

from tests.harness.binaries import ROOT
from tests.harness.daemon import wait_for
from tests.harness.fake_daemon import FakeDaemon
from tests.server.gpu_test import Machine

DEPLOY = ROOT / "deploy"
BOARDS = sorted((DEPLOY / "grafana" / "boards").glob("*.json"))
TOOLS = ROOT / ".venv" / "bin"
LONG = "steps=100000 step_ms=50"


def read_yaml(path):
    """One YAML document."""
    return yaml.safe_load((DEPLOY / path).read_text())


def queries():
    """(board, panel, expression) of every target of every panel."""
    for path in BOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield path.stem, panel["title"], target["expr"]


class Prometheus:
    """Debian's, with the tree's configuration, but for how often it scrapes and whom."""

    def __init__(self, target):
        self.folder = tempfile.TemporaryDirectory(prefix="snug-prometheus-")
        config = read_yaml("prometheus/prometheus.yaml")
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(DEPLOY / "prometheus" / each) for each in config["rule_files"]]
        config["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
        folder = pathlib.Path(self.folder.name)
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        command = [TOOLS / "prometheus", f"--config.file={folder}/prometheus.yaml"]
        command += [f"--storage.tsdb.path={folder}/series", f"--web.listen-address={self.address}"]
        self.log = folder / "log"
        with open(self.log, "wb") as out:
            # pylint: disable=consider-using-with
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)

    def values(self, expression):
        """The value of every series that an instant query finds."""
        words = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"http://{self.address}/api/v1/query?{words}") as page:
                found = json.load(page)["data"]["result"]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # It has started, and does not answer yet.
                return []
            raise AssertionError(f"{expression}: {error.read().decode()}") from error
        except OSError:
            if self.process.poll() is not None:
                raise AssertionError(self.log.read_text()) from None
            return []
        return [float(series["value"][1]) for series in found]

    def close(self):
        """Ends it, and removes what it has stored."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self.folder.cleanup()


class LoadedDaemonTest(unittest.TestCase):
    """A CPU and two GPUs with a job each, one that waits, some that have ended."""

    def setUp(self):
        self.machine = Machine()
        self.addCleanup(self.machine.close)
        flags = ("--device", "gpu:0=2GiB", "--device", "gpu:1")
        self.daemon = FakeDaemon("cpu:0=1GiB", self.machine.settings, flags)
        self.addCleanup(self.daemon.close)
        port = re.search(r"127\.0\.0\.1:(\d+)", self.daemon.log.read_text())[1]
        self.prometheus = Prometheus(f"127.0.0.1:{port}")
        self.addCleanup(self.prometheus.close)
        wait_for(lambda: self.prometheus.values("up == 1"), "a scrape", 60)

    def load(self):
        """Jobs that end, then one on each device, then one too many."""
        ended = [self.daemon.submit_script("steps=5") for _ in range(2)]
        for name in ended:
            self.daemon.wait_state(name, "SUCCEEDED")
        running = [self.daemon.submit_script(LONG) for _ in range(3)]
        for name in running:
            self.daemon.wait_step(name, 1)
        self.daemon.wait_state(self.daemon.submit_script(LONG), "QUEUED")

    def finds(self, expression):
        """Whether a query, as a board would send it, finds a number."""
        variables = {"$device": ".*", "$job": ".*", "$__rate_interval": "10s"}
        for name, value in variables.items():
            expression = expression.replace(name, value)
        self.assertNotIn("$", expression)
        return any(math.isfinite(value) for value in self.prometheus.values(expression))

    def test_every_query_of_every_board_finds_series(self):
        self.assertEqual([path.stem for path in BOARDS], ["jobs", "memory", "service"])
        self.assertFalse(self.finds('snug_job_step{job=~"$job"}'))  # A query can find nothing.
        self.load()
        for board, panel, expression in queries():
            with self.subTest(board=board, panel=panel, query=expression):
                wait_for(lambda query=expression: self.finds(query), expression, 60)
        page = f"http://{self.prometheus.address}/api/v1/rules"
        with urllib.request.urlopen(page) as rules:
            groups = json.load(rules)["data"]["groups"]
        found = [rule for group in groups for rule in group["rules"]]
        self.assertEqual({rule["health"] for rule in found}, {"ok"})
        self.assertGreater(len(found), 10)
        firing = self.prometheus.values('ALERTS{alertstate="firing", alertname!="SnugDiskLow"}')
        self.assertEqual(firing, [])  # All is well, but perhaps the disk of the test.


class FilesTest(unittest.TestCase):
    """What can be said without a daemon."""

    def promtool(self, *words):
        """Runs promtool in deploy/prometheus; it must be content."""
        done = subprocess.run(
            [TOOLS / "promtool", *words],
            cwd=DEPLOY / "prometheus",
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_alerts_fire_when_they_should_and_only_then(self):
        self.promtool("check", "config", "prometheus.yaml")
        self.promtool("test", "rules", "alerts_test.yaml")
        (group,) = read_yaml("prometheus/alerts.yaml")["groups"]
        alerts = {rule["alert"] for rule in group["rules"]}
        fired, quiet = set(), set()
        for test in read_yaml("prometheus/alerts_test.yaml")["tests"]:
            for each in test["alert_rule_test"]:
                (fired if each.get("exp_alerts") else quiet).add(each["alertname"])
        self.assertEqual((fired, quiet), (alerts, alerts))

    def test_rules_and_boards_name_series_that_are_in_the_docs(self):
        known = set(re.findall(r"^\| `(snug_\w+)`", (ROOT / "docs/metrics.md").read_text(), re.M))
        rules = [read_yaml(f"prometheus/{name}.yaml") for name in ("rules", "alerts")]
        asked = [rule["expr"] for each in rules for rule in each["groups"][0]["rules"]]
        asked += [expression for _, _, expression in queries()]
        for expression in asked:
            for name in re.findall(r"(?<![\w:])snug_\w+", expression):
                self.assertIn(re.sub(r"(?<!k)_(bucket|sum|count)$", "", name), known, expression)

    def test_boards_are_provisioned_with_the_source_that_they_name(self):
        (source,) = read_yaml("grafana/provisioning/datasources/prometheus.yaml")["datasources"]
        seen = set()
        for path in BOARDS:
            board = json.loads(path.read_text())
            seen.add(board["uid"])
            for each in (*board["panels"], *board["templating"]["list"]):
                self.assertEqual(each["datasource"], {"type": source["type"], "uid": source["uid"]})
            ids = [panel["id"] for panel in board["panels"]]
            self.assertEqual(len(ids), len(set(ids)))
        self.assertEqual(len(seen), len(BOARDS))

    def test_the_compose_file_names_what_there_is(self):
        compose = read_yaml("compose.yaml")
        services = compose["services"]
        self.assertEqual(set(services), {"snugd", "prometheus", "grafana"})
        places = {}  # Path in a container -> what is there.
        for name, service in services.items():
            for volume in service["volumes"]:
                source, place = volume.replace("${MODELS:-/srv}", "/srv").split(":")[:2]
                places[name, place] = source
                if source.startswith("."):
                    self.assertTrue((DEPLOY / source).exists(), source)
                elif not source.startswith("/"):
                    self.assertIn(source, compose["volumes"])
            shared = service.get("network_mode", "service:snugd").removeprefix("service:")
            self.assertIn(shared, services)
        build = services["snugd"]["build"]
        context = DEPLOY / build["context"]
        self.assertEqual(os.path.realpath(context), os.path.realpath(ROOT))
        self.assertTrue((context / build["dockerfile"]).is_file())
        flag = services["prometheus"]["command"][0]
        config = pathlib.PurePath(flag.removeprefix("--config.file="))
        source = places["prometheus", str(config.parent)]
        self.assertTrue((DEPLOY / source / config.name).exists())
        (boards,) = read_yaml("grafana/provisioning/dashboards/snug.yaml")["providers"]
        self.assertEqual(places["grafana", boards["options"]["path"]], "./grafana/boards")

    def test_everybody_listens_where_the_next_one_looks(self):
        (scraped,) = read_yaml("prometheus/prometheus.yaml")["scrape_configs"]
        port = re.search(r"kDefaultMetricsPort = (\d+)", (ROOT / "server/config.h").read_text())[1]
        self.assertEqual(scraped["static_configs"], [{"targets": [f"127.0.0.1:{port}"]}])
        self.assertTrue(scraped["honor_labels"])
        (source,) = read_yaml("grafana/provisioning/datasources/prometheus.yaml")["datasources"]
        services = read_yaml("compose.yaml")["services"]
        listens = services["prometheus"]["command"][1].removeprefix("--web.listen-address=")
        self.assertEqual(source["url"], f"http://127.0.0.1{listens}")
        self.assertIn(f"127.0.0.1{listens}{listens}", services["snugd"]["ports"])


if __name__ == "__main__":
    unittest.main()
