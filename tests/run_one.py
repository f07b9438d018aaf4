"""Runs one test method of one file: run_one.py FILE CLASS.METHOD. Exit 0 passed, 1 failed, 77 skipped
(with its reason as the last line)."""
import importlib.util
import os
import sys
import unittest

path, name = sys.argv[1], sys.argv[2]
sys.path.insert(0, os.path.dirname(path))
sys.path.insert(0, os.path.dirname(os.path.dirname(path)))
spec = importlib.util.spec_from_file_location("the_test", path)
module = importlib.util.module_from_spec(spec)
sys.modules["the_test"] = module
spec.loader.exec_module(module)
result = unittest.TextTestRunner(verbosity=2, stream=sys.stdout).run(
    unittest.defaultTestLoader.loadTestsFromName(name, module))
if result.testsRun == 0:
    sys.exit("no such test: " + name)
for _, reason in result.skipped:
    print("skipped:", reason)
sys.exit(1 if not result.wasSuccessful() else 77 if result.skipped else 0)
