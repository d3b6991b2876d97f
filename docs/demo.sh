#!/usr/bin/env bash
# A small fleet, its stuck gangs, why they are stuck and where they fit.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

tell() { printf '\n# %s\n' "$*"; }
run() { printf '$ gangplan %s\n' "$*"; gangplan "$@" 2>&1; }

tell "A fleet of 48 nodes with 8 GPUs each, as the objects kubectl would print"
run generate dgx-h100 --nodes 48 --utilization 0.6 --pending 0.35 --fragmentation bad \
    --seed 8 -O fleet.json.gz

tell "What is free, and who waits"
run inspect fleet.json.gz

tell "Which of them fit now, and why the others do not"
run explain fleet.json.gz

tell "Where they go"
run place fleet.json.gz

tell "The same plan as JSON, replayed by an independent verifier"
run place fleet.json.gz -O plan.json
run verify fleet.json.gz --plan plan.json
