"""The trainer's arithmetic is PyTorch's: first parameters bit by bit; logits, losses and gradients of random
shapes, optimizers and schedules within rounding. Debian's PyTorch 1.13 is compared with."""
import os
import subprocess
import unittest

import harness

CALLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train_arithmetic_calls.py")
PROBE = os.path.join(harness.BIN, "train_math_probe")


class Arithmetic(unittest.TestCase):
    def agree(self, mode):
        if not os.path.exists(PROBE):
            raise unittest.SkipTest("the trainer is not built")
        if not harness.has_torch():
            raise unittest.SkipTest("no PyTorch for " + harness.PYTHON)
        done = subprocess.run([harness.PYTHON, CALLS, mode, PROBE], env=harness.base_environment(), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_first_parameters_are_pytorchs_bit_by_bit(self):
        self.agree("initial")

    def test_logits_losses_and_gradients_are_pytorchs(self):
        self.agree("gradients")

    def test_optimizers_and_clipping_are_pytorchs_for_100_steps(self):
        self.agree("optimizers")

    def test_schedules_are_pytorchs(self):
        self.agree("schedules")
