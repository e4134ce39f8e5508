#!/bin/bash
# Three rewards: whether files are copied, whether a mistake is refused, and both together.
work=$(mktemp -d)
mkdir -p "$work/from/a b"
echo one > "$work/from/one.txt"
echo two > "$work/from/a b/two words.txt"
copies=0
refuses=0
bash /app/backup.sh "$work/from" "$work/to" && diff -r "$work/from" "$work/to" && copies=1
bash /app/backup.sh "$work/missing" "$work/nothing"
if [ $? -eq 2 ] && [ ! -e "$work/nothing" ]; then
    refuses=1
fi
cat > /logs/verifier/reward.json <<END
{"reward": $((copies * refuses)), "copies": $copies, "refuses": $refuses}
END
