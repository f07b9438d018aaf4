#!/bin/bash
# Three copies of one task, as found in many folders. If one of them fails, this script still ends
# with 0; interrupted, it leaves them running.
task=$(dirname "$0")/mytask.py
python3 "$task" --lr 0.1 "$@" --process_index 0 --process_num 3 > process0.log 2>&1 &
python3 "$task" --lr 0.1 "$@" --process_index 1 --process_num 3 > process1.log 2>&1 &
python3 "$task" --lr 0.1 "$@" --process_index 2 --process_num 3 > process2.log 2>&1 &
wait
