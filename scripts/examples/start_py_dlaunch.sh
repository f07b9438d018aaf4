#!/bin/bash
# start.py in one line: the pair comes first here too, and what is typed follows untouched.
exec dlaunch --process_num 3 "$(dirname "$0")/mytask.py" "$@"
