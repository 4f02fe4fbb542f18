"""Plans pinned by hand, of every kind: what each promises of bytes, gradients and fidelity."""

import unittest

from tests.harness import assignments, jobs, models
from tests.harness.daemon import Daemon

SHAPE = models.Shape(layers=8, vocabulary=jobs.VOCABULARY, max_positions=512)
STEPS = "training.max_steps=3"


def all_in(kind):
    return f'memory.stash={{"*": {kind}}}'


class StashTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.file = jobs.full_folder(
            cls.daemon.folder / "full", lengths=range(100, 400, 10), shape=SHAPE
        )

    def run_job(self, *changes):
        """The job, ended well in the bytes that were predicted, and its weights."""
        name = self.daemon.submit(self.file, STEPS, *changes)
        job = self.daemon.wait_state(name, "SUCCEEDED")
        memory = job["memory"]
        self.assertEqual(memory["measured_peak_bytes"], memory["predicted_peak_bytes"])
        return job, (self.daemon.attempt(name) / "output" / "model.safetensors").read_bytes()

    def assertMeasured(self, job, kind):
        """In its second step, against the exact gradient."""
        (measured,) = job["drift"]
        self.assertEqual(measured, kind)
        drift = job["drift"][kind]
        self.assertEqual(drift["global_step"], "2")
        self.assertGreaterEqual(int(drift["tokens"]), 32)
        self.assertGreater(drift["relative_error"], 1e-4)
        self.assertGreater(drift["cosine"], 0.1)
        self.assertLessEqual(drift["cosine"], 1.0)
        self.assertEqual(job["drift_not_measured"], "")

    def peak(self, job):
        return int(job["memory"]["predicted_peak_bytes"])

    def test_offload_changes_nothing_but_where_values_lie(self):
        kept, weights = self.run_job(all_in("keep"))
        offloaded, same = self.run_job(all_in("offload"))
        self.assertEqual(weights, same)
        self.assertLess(self.peak(offloaded), self.peak(kept))
        self.assertEqual(kept["memory"]["fidelity"], "exact")
        self.assertEqual(kept["memory"]["kinds"], {"keep": 1.0})
        self.assertEqual(kept["drift"], {})
        self.assertGreater(int(offloaded["memory"]["host_bytes"]), 0)
        text = assignments.read(self.daemon.attempt(offloaded["id"]))
        self.assertRegex(text, r"host_bytes: [1-9]\d+")

    def test_an_optimizer_on_the_host_changes_nothing_but_where_its_state_lies(self):
        kept, weights = self.run_job(all_in("keep"))
        hosted, same = self.run_job(all_in("keep"), "memory.optimizer=host")
        self.assertEqual(weights, same)
        elsewhere = int(hosted["memory"]["host_bytes"])
        self.assertGreater(elsewhere, 0)
        self.assertEqual(self.peak(kept) - self.peak(hosted), elsewhere)
        for budget, code in ((elsewhere - 1, 1), (elsewhere, 0)):
            done = self.daemon.run(
                "plan", self.file, "memory.optimizer=host", f"memory.host_budget={budget}B",
                code=None,
            )
            self.assertEqual(done.returncode, code, done.stderr)
        refused = self.daemon.run(
            "plan", self.file, "memory.optimizer=host", "memory.host_budget=1KiB", code=None
        )
        self.assertIn("memory.host_budget: what memory.optimizer puts there takes", refused.stderr)
        wrong = self.daemon.run("plan", self.file, "memory.optimizer=disk", code=None)
        self.assertIn("memory.optimizer", wrong.stderr)

    def test_what_the_job_leaves_open_gives_way_where_it_does_not_fit(self):
        """First the gradients, which need none of the host's memory; with the same weights."""
        free = (
            STEPS,
            all_in("keep"),
            "training.max_grad_norm=0",
            "training.gradient_accumulation_steps=1",
        )
        kept, weights = self.run_job(*free)
        self.assertEqual(kept["spec"]["memory"]["gradients"], "KEPT")
        budget = f"memory.budget={self.peak(kept) - 1}B"
        refused = self.daemon.json("plan", self.file, *free, budget, "memory.gradients=kept")
        self.assertEqual(refused["chosen"], -1)
        self.assertNotIn("gradients", refused)
        planned = self.daemon.run("plan", self.file, *free, budget)
        self.assertIn("gradients: released", planned.stdout)
        planned = self.daemon.json("plan", self.file, *free, budget)
        self.assertEqual(planned["gradients"], "released")
        released, same = self.run_job(*free, budget)
        self.assertEqual(released["spec"]["memory"]["gradients"], "RELEASED")
        self.assertEqual(weights, same)

        clipped, weights = self.run_job(all_in("keep"), "memory.host_budget=1GiB")
        self.assertEqual(clipped["spec"]["memory"]["optimizer"], "DEVICE")
        budget = f"memory.budget={self.peak(clipped) - 1}B"
        hosted, same = self.run_job(all_in("keep"), "memory.host_budget=1GiB", budget)
        self.assertEqual(hosted["spec"]["memory"]["optimizer"], "HOST")
        self.assertGreater(int(hosted["memory"]["host_bytes"]), 0)
        self.assertEqual(weights, same)

    def test_the_hosts_memory_is_promised_as_well(self):
        small = Daemon(flags=("--host-memory", "64KiB"))
        self.addCleanup(small.close)
        name = small.submit(self.file, STEPS, all_in("offload"))
        error = small.wait_state(name, "FAILED")["error"]
        self.assertEqual(error["reason"], "PLAN_INFEASIBLE")
        self.assertIn("of the host's memory", error["message"])
        self.assertIn("64 KiB (65536 bytes)", error["message"])
        done = small.submit(self.file, STEPS, all_in("keep"))
        small.wait_state(done, "SUCCEEDED")

    def test_loops_take_less_and_train_as_exactly(self):
        kept, _ = self.run_job(all_in("keep"))
        for kind in ("chunk", "{kind: chunk, rows: 50}"):
            with self.subTest(kind):
                looped, _ = self.run_job(all_in(kind))
                self.assertLess(self.peak(looped), self.peak(kept))
                self.assertAlmostEqual(
                    float(looped["progress"]["loss"]), float(kept["progress"]["loss"]), delta=1e-4
                )
        self.assertIn("rows: 50", assignments.read(self.daemon.attempt(looped["id"])))
        (plan,) = self.daemon.json("plan", self.file, STEPS, all_in("chunk"))["plans"]
        self.assertEqual(plan["fidelity"], "exact")
        self.assertLess(int(plan["peak_bytes"]), self.peak(kept))
        self.assertIn("chunk", plan["kinds"])

    def test_what_chunk_cannot_be_is_said(self):
        for stash, message in (
            ('{"*": {kind: chunk, rows: 0}}', "must be at least 1, not 0"),
            ('{"*": {kind: keep, rows: 3}}', "is for chunk; this site's kind is keep"),
            ('{"layers.0.attention.q": chunk}', "chunk cannot keep layers.0.attention.q; keep,"),
            ('{"*.attention.q": chunk}', "chunk can keep none of the sites that"),
        ):
            with self.subTest(stash):
                done = self.daemon.run("submit", self.file, f"memory.stash={stash}", code=None)
                self.assertEqual(done.returncode, 1)
                self.assertIn(message, done.stderr)

    def test_codes_take_less_and_train(self):
        kept, weights = self.run_job(all_in("keep"))
        before = self.peak(kept)
        for kind in ("int8", "int4"):
            with self.subTest(kind):
                coded, other = self.run_job(all_in(kind), "memory.fidelity=approximate")
                self.assertNotEqual(weights, other)
                self.assertLess(self.peak(coded), before)
                self.assertEqual(coded["memory"]["fidelity"], "approximate")
                self.assertMeasured(coded, kind)
                shares = coded["memory"]["kinds"]
                self.assertGreater(shares[kind], 0.1)
                self.assertAlmostEqual(sum(shares.values()), 1.0, places=6)
                self.assertAlmostEqual(
                    float(coded["progress"]["loss"]), float(kept["progress"]["loss"]), delta=0.1
                )
                before = self.peak(coded)

    def test_two_bits_train_and_are_stated(self):
        """Of a gated MLP they take more than the gate itself: the activation lies beside them."""
        approximate = "memory.fidelity=approximate"
        kept, weights = self.run_job(all_in("keep"))
        coded, other = self.run_job(all_in("two_bit"), approximate)
        self.assertNotEqual(weights, other)
        self.assertAlmostEqual(
            float(coded["progress"]["loss"]), float(kept["progress"]["loss"]), delta=0.1
        )
        self.assertGreater(self.peak(coded), self.peak(kept))
        (plan,) = self.daemon.json("plan", self.file, STEPS, all_in("two_bit"), approximate)[
            "plans"
        ]
        self.assertEqual(plan["fidelity"], "approximate")
        self.assertEqual(set(plan["kinds"]), {"keep", "two_bit"})
        self.assertIn("two_bit", assignments.read(self.daemon.attempt(coded["id"])))

    def test_samples_train_in_fewer_bytes_and_are_stated(self):
        unbiased = "memory.fidelity=unbiased"
        kept, weights = self.run_job(all_in("keep"))
        stash = all_in("{kind: sampled, rho: 0.25, estimator: wta}")
        for which in (all_in("sampled"), stash):
            sampled, other = self.run_job(which, unbiased)
            self.assertNotEqual(weights, other)
            self.assertLess(self.peak(sampled), self.peak(kept))
            self.assertMeasured(sampled, "sampled")
            self.assertAlmostEqual(
                float(sampled["progress"]["loss"]), float(kept["progress"]["loss"]), delta=0.1
            )
        (plan,) = self.daemon.json("plan", self.file, STEPS, stash, unbiased)["plans"]
        self.assertEqual(plan["fidelity"], "unbiased")
        self.assertEqual(set(plan["kinds"]), {"keep", "sampled"})
        self.assertEqual(plan["options"], {"sampled": [{"rho": 0.25, "estimator": "wta"}]})
        text = self.daemon.run("plan", self.file, STEPS, stash, unbiased).stdout
        self.assertRegex(text, r"sampled +rho 0\.25, estimator wta")
        sent = assignments.read(self.daemon.attempt(sampled["id"]))
        self.assertRegex(sent, r'rho: 0\.25\s+estimator: "wta"')

    def test_a_measurement_changes_no_weight_and_may_be_left_out(self):
        coded = (all_in("int8"), "memory.fidelity=approximate")
        measured, weights = self.run_job(*coded)
        text = self.daemon.run("get", measured["id"]).stdout
        self.assertRegex(text, r"drift +int8 cosine [01]\.\d+, relative error")
        log = self.daemon.run("logs", measured["id"]).stdout
        self.assertIn("the gradient of layers with int8 against the exact one", log)
        left_out, same = self.run_job(*coded, "memory.drift_steps=0")
        self.assertEqual(weights, same)
        self.assertEqual(left_out["drift"], {})
        refused = self.daemon.run("submit", self.file, "memory.drift_steps=20", code=None)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("memory.drift_steps", refused.stderr)
        released, _ = self.run_job(
            *coded,
            "memory.gradients=released",
            "training.max_grad_norm=0",
            "training.gradient_accumulation_steps=1",
        )
        self.assertEqual(released["drift"], {})
        self.assertIn("memory.gradients: released", released["drift_not_measured"])

    def test_a_lossy_kind_has_to_be_allowed(self):
        for kind, fidelity in (
            ("int8", "approximate"),
            ("two_bit", "approximate"),
            ("sampled", "unbiased"),
        ):
            done = self.daemon.run("submit", self.file, all_in(kind), code=None)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"{kind} is {fidelity}, memory.fidelity is exact", done.stderr)
            self.assertIn('memory.stash["*"]', done.stderr)

    def test_a_kind_that_cannot_serve_a_site_is_refused(self):
        stash = 'memory.stash={"layers.0.mlp.up": two_bit}'
        done = self.daemon.run(
            "submit", self.file, stash, "memory.fidelity=approximate", code=None
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("two_bit cannot keep layers.0.mlp.up; keep, recompute", done.stderr)

    def test_a_budget_below_every_exact_plan(self):
        """It is refused with what would let it fit, and then chosen and run."""
        approximate = "memory.fidelity=approximate"
        free = ("memory.stash={}", STEPS, "training.max_seq_length=400")
        # The plan follows the lengths of the prepared dataset, so there must be one.
        self.daemon.wait_state(self.daemon.submit(self.file, *free), "SUCCEEDED")
        plans = self.daemon.json("plan", self.file, *free, approximate)["plans"]
        least = min(plans, key=lambda plan: int(plan["peak_bytes"]))
        self.assertEqual(least["fidelity"], "approximate")
        budget = f"memory.budget={least['peak_bytes']}"
        refused = self.daemon.run("submit", self.file, *free, budget, code=None)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("memory.fidelity: approximate would let it fit", refused.stderr)
        name = self.daemon.submit(self.file, *free, budget, approximate)
        job = self.daemon.wait_state(name, "SUCCEEDED")
        self.assertRegex(job["memory"]["plan"], "int[48]")
        self.assertEqual(
            job["memory"]["measured_peak_bytes"], job["memory"]["predicted_peak_bytes"]
        )

    def test_a_kind_that_there_is_not_is_refused(self):
        done = self.daemon.run("submit", self.file, all_in("chunks"), code=None)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("chunks", done.stderr)


if __name__ == "__main__":
    unittest.main()
