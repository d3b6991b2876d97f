#!/usr/bin/env bash
# A small fleet, its stuck gangs, why they are stuck and where they fit.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

tell() { printf '\n# %s\n' "$*"; }
run() { printf '$ gangplan %s\n' "$*"; gangplan "$@"; }

tell "A fleet of 32 nodes with 8 GPUs each, written as the objects kubectl would print"
run generate dgx-h100 --nodes 32 --seed 4 -O fleet.json.gz

tell "What is free, and who waits"
run inspect fleet.json.gz

tell "Why the waiting gangs cannot start, each judged alone"
run explain fleet.json.gz

tell "Where they go when they are planned together"
run place fleet.json.gz

tell "The same plan as JSON, replayed by an independent verifier"
run place fleet.json.gz -O plan.json
run verify fleet.json.gz --plan plan.json
