"""Three copies of one task from Python: the pair first, then what was typed. Nobody looks at their codes."""
import os
import subprocess
import sys

COPIES = 3
task = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mytask.py")
copies = [
    subprocess.Popen([sys.executable, task, "--process_index", str(i), "--process_num", str(COPIES)] + sys.argv[1:])
    for i in range(COPIES)
]
for copy in copies:
    copy.wait()
