"""`train` with its CUDA module, on stand-ins for the CUDA libraries: everything but a GPU's own execution."""
import json
import os

import harness
from train_runs import SMALL, TRAIN, TestCase, digest, lines, losses

FAKES = os.path.join(os.path.dirname(harness.BIN.rstrip("/")), "fake_cuda")
ARGS = SMALL + ["--steps", "10", "--log-every", "1", "--global-batch", "64", "--digest"]


class OnStandIns(TestCase):
    def setUp(self):
        super().setUp()
        if not os.path.exists(os.path.join(harness.BIN, "train_cuda.so")) or not os.path.isdir(FAKES):
            self.skipTest("no CUDA module in this build (nvcc and NCCL)")

    def gpus(self, count, **more):
        return {"LD_LIBRARY_PATH": FAKES, "FAKE_CUDA_DEVICES": str(count), **more}


class Gpu(OnStandIns):
    def assert_as_on_the_cpu(self, run, delta=1e-5):
        expected = losses(self.train(ARGS).out)
        seen = losses(run.out)
        self.assertEqual(len(seen), len(expected))
        self.assertLess(max(abs(a - b) for a, b in zip(seen, expected)), delta)

    def test_a_gpu_is_used_if_there_is_one(self):
        run = self.train(ARGS, env=self.gpus(1))
        self.assertIn("train: 1 rank on cuda:0", run.err)
        self.assert_as_on_the_cpu(run)
        self.assertIn("1 rank on cpu:0", self.train(ARGS + ["--no-cuda"], env=self.gpus(1)).err)

    def test_the_cnn_computes_as_on_the_cpu(self):
        args = ["--data", "synthetic:640", "--model", "cnn", "--steps", "3", "--log-every", "1", "--global-batch", "16"]
        gpu = losses(self.train(args, env=self.gpus(1), timeout=120).out)
        cpu = losses(self.train(args).out)
        self.assertLess(max(abs(a - b) for a, b in zip(gpu, cpu)), 1e-4)

    def test_ranks_with_a_gpu_each_reduce_over_nccl(self):
        run = self.train_ranks(2, ARGS, env=self.gpus(2))
        self.assertIn("2 ranks on cuda:0 (Stand-in GPU, 2 GB), nccl", run.err)
        self.assert_as_on_the_cpu(run)
        self.assertGreater(lines(run.out)[-1]["ms"]["reduce"], 0)

    def test_nccl_with_one_rank_changes_nothing(self):
        alone = self.train(ARGS, env=self.gpus(1))
        nccl = self.train(ARGS + ["--backend", "nccl"], env=self.gpus(1))
        self.assertIn(", nccl", nccl.err)
        self.assertEqual(digest(alone.out), digest(nccl.out))

    def test_ranks_that_share_a_gpu_fall_back_to_the_host_and_say_so(self):
        run = self.train_ranks(2, ARGS, env=self.gpus(1))
        self.assertIn("gloo; ranks 0 and 1 share one GPU", run.err)
        self.assert_as_on_the_cpu(run)
        refused = self.train_ranks(2, ARGS + ["--backend", "nccl"], code=2, env=self.gpus(1))
        self.assertIn("ranks 0 and 1 share one GPU", refused.err)

    def test_allreduce_sums_the_memory_of_the_gpus_where_it_is(self):
        log = os.path.join(harness.temporary_folder(), "nccl")
        run = self.train_ranks(2, ["allreduce", "--sizes", "4M,8", "--iterations", "3"],
                               env=self.gpus(2, FAKE_NCCL_LOG=log))
        self.assertIn("# 2 ranks, nccl, memory of cuda:0, 3 iterations", run.out)
        self.assertIn("# Out of bounds values : 0 OK", run.out)
        with open(log) as file:
            counts = [int(line.split()[2]) for line in file]
        # Host memory would have passed in pieces of 1 MiB.
        self.assertEqual(counts.count(1 << 20), 2 * (1 + 3))
        self.assertEqual(counts.count(2), 2 * (1 + 3))

    def test_allreduce_stages_what_gloo_sums(self):
        run = self.train_ranks(2, ["allreduce", "--sizes", "4M,8", "--iterations", "3", "--backend", "gloo"],
                               env=self.gpus(2))
        self.assertIn("# 2 ranks, gloo, memory of cuda:0, 3 iterations", run.out)
        self.assertIn("# Out of bounds values : 0 OK", run.out)

    def test_tree_has_the_same_bits_on_gpus_for_1_2_and_4_ranks(self):
        args = ARGS + ["--reduce=tree"]
        seen = {digest(self.train_ranks(ranks, args, env=self.gpus(1)).out) for ranks in (1, 2, 4)}
        self.assertEqual(len(seen), 1)

    def test_waits_between_streams_are_needed(self):  # the control for all of these
        if losses(self.train_ranks(2, ARGS, env=self.gpus(2, FAKE_CUDA_LOSE_WAITS="1"), code=None).out) == losses(
                self.train(ARGS).out):
            self.fail("streams that do not wait for each other gave the right sums")

    def test_a_killed_rank_is_named(self):
        args = SMALL + ["--steps", "100000", "--timeout", "20", "--inject", "rank=1,step=5,how=kill"]
        runs = self.start_ranks(3, args, env=self.gpus(3))
        for rank in (0, 2):
            self.assertEqual(runs[rank].wait(60), 1, runs[rank])
            self.assertIn("rank 1 is silent", runs[rank].err)

    def test_a_refused_allocation_is_an_error_with_its_size(self):
        run = self.train(ARGS, code=1, env=self.gpus(1, FAKE_CUDA_FAIL="malloc:3"))
        self.assertIn("train: error: ", run.err)
        self.assertIn("cuda:0", run.err)

    def test_a_driver_without_a_gpu_is_named_and_the_cpu_is_used(self):
        run = self.train(ARGS, env=self.gpus(1, FAKE_CUDA_FAIL="count:100"))
        self.assertIn("1 rank on cpu:0", run.err)
        self.assertIn("cudaGetDeviceCount", run.err)

    def test_dp_spreads_over_the_gpus_of_one_process(self):
        run = self.train(ARGS + ["--mode", "dp"], env=self.gpus(3))
        self.assert_as_on_the_cpu(run)

    def test_dp_uses_the_devices_it_is_told(self):
        run = self.train(ARGS + ["--mode", "dp", "--device-ids", "2,1"], env=self.gpus(3))
        self.assertIn("1 rank on cuda:2", run.err)
        run = self.train(ARGS + ["--mode", "dp", "--device-ids", "0,3"], env=self.gpus(3), code=None)
        self.assertNotEqual(run.code, 0)
        self.assertIn("--device-ids 3", run.err)


class DeviceCheck(OnStandIns):
    """Of scripts/device_check.sh, the steps that stand-ins are fast enough for."""

    def check(self, *steps, code=0, env=None):
        folder = harness.temporary_folder()
        run = self.start([os.path.join(harness.ROOT, "scripts", "device_check.sh"), *steps],
                         env={"DLAUNCH_BIN": harness.BIN, "OUT": folder, **(env or {})})
        run.wait(120)
        self.assert_code(run, code)
        return run, os.path.join(folder, "device_check.json")

    def test_without_a_gpu_it_skips_with_the_reason(self):
        run, results = self.check(env=self.gpus(0))
        self.assertIn("skipped: no GPU (cudaGetDeviceCount", run.out)
        with open(results) as file:
            self.assertEqual(list(json.load(file)), ["skipped"])

    def test_steps_have_a_result_each(self):
        run, results = self.check("versions", "allreduce", env=self.gpus(1))
        with open(results) as file:
            found = json.load(file)
        self.assertEqual({name: result["status"] for name, result in found.items()},
                         {"versions": "ok", "allreduce": "ok"}, run)
        self.assertIn("Stand-in GPU", str(found["versions"]))
        self.assertIn("OK", str(found["allreduce"]["found"]["nccl, 1 rank"]))

    def test_a_failed_step_is_a_failure(self):
        run, _ = self.check("allreduce", code=1, env=self.gpus(1, FAKE_CUDA_FAIL="malloc:9"))
        self.assertIn("failed   allreduce", run.out)

    def test_a_step_that_is_none_is_refused(self):
        run, _ = self.check("nothing", code=2, env=self.gpus(1))
        self.assertIn("no step 'nothing'", run.err)
