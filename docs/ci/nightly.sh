#!/bin/sh
# One nightly run, for any CI: the matrix against the last green run, the report as a folder, and the exit code as it is.
#
#   sh nightly.sh MATRIX [INVENTORY [ARGUMENT...]]
#
# Arguments are passed to pytest; an empty INVENTORY is none.
# reports/history.sqlite  the history of all runs, kept by the CI between runs
# baseline/  the last green run, kept by the CI between runs; the first one has none
# report/    this run, to be kept as an artefact: report/index.html, summary.md, junit.xml, the redacted logs,
#            and nights.html with the newest 60 runs of the history
# reports/.private/  raw logs in which secrets were found: keep them out of every artefact and cache
set -u
matrix=$1 inventory=${2:-}
shift
[ "$#" -eq 0 ] || shift
set -- --hetgpu-matrix "$matrix" --hetgpu-reports reports ${inventory:+--hetgpu-inventory "$inventory"} "$@"
[ ! -d baseline/journal ] || set -- "$@" --hetgpu-baseline baseline

newest() { readlink reports/latest || cat reports/latest.txt; } 2>/dev/null

before=$(newest)
status=0
pytest "$@" || status=$?

# Killed from outside (out of memory, say): what was judged stays, the rest is run, and the exit code is that of the whole.
tries=2
while [ "$status" -gt 128 ] && [ "$tries" -gt 0 ] && [ "$(newest)" != "$before" ]; do
  echo "pytest was killed ($status): resuming $(newest)" >&2
  tries=$((tries - 1)) status=0
  pytest "$@" --hetgpu-resume="$(newest)" || status=$?
done

# Only what this run has made: a workspace may still hold another's.
rm -rf report
[ "$(newest)" = "$before" ] || cp -rL "reports/$(newest)" report
[ ! -d report ] || hetgpu history --reports reports --html report/nights.html || true
case $status in
  0) [ ! -d report ] || { rm -rf baseline && cp -r report baseline; } ;;
  1) echo "new or changed failures, or fixed ones: see report/index.html" >&2 ;;
  10) echo "nothing could run: look at the hosts, not at the software" >&2 ;;
  *) echo "pytest ended with $status: the run itself went wrong" >&2 ;;
esac
exit "$status"
