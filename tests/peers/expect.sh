# Sourced by the tests of this folder: stop at the first command that fails, and a few words to say what must hold.
set -euo pipefail

# has TEXT COMMAND…: the output of the command contains the text.
has() {
  local text=$1 out
  shift
  out=$("$@" 2>&1) || { echo "failed: $*"; echo "$out"; return 1; }
  case $out in *"$text"*) ;; *) echo "no \"$text\" in the output of: $*"; echo "$out"; return 1 ;; esac
}

# fails TEXT COMMAND…: the command fails, and says the text.
fails() {
  local text=$1 out
  shift
  if out=$("$@" 2>&1); then echo "did not fail: $*"; echo "$out"; return 1; fi
  case $out in *"$text"*) ;; *) echo "no \"$text\" in the error of: $*"; echo "$out"; return 1 ;; esac
}

# within SECONDS TEXT COMMAND…: the output contains the text before the time is over.
within() {
  local end=$((SECONDS + $1)) text=$2 out
  shift 2
  while :; do
    out=$("$@" 2>&1 || true)
    case $out in *"$text"*) return 0 ;; esac
    if [ $SECONDS -ge $end ]; then echo "never \"$text\" in the output of: $*"; echo "$out"; return 1; fi
    sleep 0.1
  done
}
