#!/bin/bash
# start.sh in one line: the exit code is that of the first copy that fails, and nothing stays behind.
exec dlaunch --process_num 3 --log_file 'process%i.log' "$(dirname "$0")/mytask.py" --lr 0.1 "$@"
