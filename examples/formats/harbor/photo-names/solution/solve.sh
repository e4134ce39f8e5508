#!/bin/bash
cd /app/photos
for file in IMG_*.txt; do
    [[ $file =~ ^IMG_([0-9]{4})([0-9]{2})([0-9]{2})_([0-9]+)\.txt$ ]] || continue
    mv "$file" "$(printf '%s-%s-%s-%03d.txt' "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "${BASH_REMATCH[3]}" "${BASH_REMATCH[4]}")"
done
