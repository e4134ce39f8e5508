#!/bin/bash
awk '$2 == "ERROR" { count[$3]++ } END { for (name in count) print name, count[name] }' /app/service.log |
    sort -k2,2nr -k1,1 > /app/errors.txt
