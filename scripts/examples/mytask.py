"""A task as people cut it up by hand: copy I of N works on every N-th item.

    python3 mytask.py --lr 0.1 --process_index 1 --process_num 3
"""
import argparse
import os
import sys

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--items", type=int, default=10)
parser.add_argument("--out", default=".", help="folder for the results, one file a copy")
parser.add_argument("--fail", default="", metavar="INDEX:CODE", help="this copy ends with this code, for demonstration")
parser.add_argument("--process_index", type=int, default=0)
parser.add_argument("--process_num", type=int, default=1)
args = parser.parse_args()

mine = range(args.process_index, args.items, args.process_num)
print("copy %d of %d: items %s, lr %g" % (args.process_index, args.process_num, " ".join(map(str, mine)), args.lr))

index, _, code = args.fail.partition(":")
if code and int(index) == args.process_index:
    print("copy %d cannot go on" % args.process_index, file=sys.stderr)
    sys.exit(int(code))

with open(os.path.join(args.out, "result%d.txt" % args.process_index), "w") as result:
    for item in mine:
        result.write("%d %g\n" % (item, item * args.lr))
