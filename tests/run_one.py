"""run_one.py FILE CLASS.METHOD runs one test method: exit 0 passed, 1 failed, 77 skipped, with the reason as
the last line. run_one.py --list FILE prints the names of all of them."""
import importlib.util
import os
import sys
import unittest


def load(path):
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:0] = [os.path.dirname(os.path.abspath(path)), os.path.join(here, "system")]
    spec = importlib.util.spec_from_file_location("the_test", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["the_test"] = module
    spec.loader.exec_module(module)
    return module


def names(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from names(item)
        else:
            yield item.id().split(".", 1)[1]


if sys.argv[1] == "--list":
    found = sorted(set(names(unittest.defaultTestLoader.loadTestsFromModule(load(sys.argv[2])))))
    if not found:
        sys.exit("no test in " + sys.argv[2])
    print("\n".join(found))
else:
    module = load(sys.argv[1])
    suite = unittest.defaultTestLoader.loadTestsFromName(sys.argv[2], module)
    result = unittest.TextTestRunner(verbosity=2, stream=sys.stdout).run(suite)
    if result.testsRun == 0:
        sys.exit("no such test: " + sys.argv[2])
    for _, reason in result.skipped:
        print("skipped:", reason)
    sys.exit(1 if not result.wasSuccessful() else 77 if result.skipped else 0)
