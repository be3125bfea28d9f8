#!/usr/bin/env bash
# Records anew the traces that the lab replays; the first argument is the pinfold program. It takes gcc, curl and
# Python. The traces differ from run to run a little: golden tables have to be renewed with them.
set -eu
pinfold=$(realpath "$1")
cd "$(dirname "$0")"
record() { "$pinfold" trace record --no-names --out "$@"; }

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
printf '#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\nint main(void) { return puts("it"); }\n' \
    > "$place/it.c"
record sessions.trace --kinds socket -- python3 traffic.py sessions
record compile.trace --kinds file,pipe -- gcc -O1 -pipe -o "$place/it" "$place/it.c"
record spool.trace --kinds file -- python3 traffic.py spool
record pipe.trace --kinds pipe -- sh -c 'dd if=/dev/zero bs=64K count=200 status=none | cat > /dev/null'
record bulk.trace --kinds socket -- python3 traffic.py bulk
record chat.trace --kinds socket -- python3 traffic.py chat
"$pinfold" trace record --translations --out sends.trace -- "$pinfold" lab sends
ls -l ./*.trace
