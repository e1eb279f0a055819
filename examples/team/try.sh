#!/usr/bin/env bash
# Releases invented trips of two cities, and verifies them. See README.md.
set -euo pipefail
export OD_ENVIRONMENT=development
for city in oslo bergen; do
    od-release invent "$city" --period 2026-01 --rows 20000
done
od-release invent oslo --period 2026-02 --rows 20000
dg check defs
od-release run oslo --period 2026-01
dg launch --job cities_release --partition "2026-01|bergen"
od-release status
dg launch --job od_verification
od-release doctor oslo
python try_faults.py
