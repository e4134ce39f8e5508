import csv
from collections import defaultdict

totals = defaultdict(float)
with open("/data/sales.csv", newline="") as file:
    for row in csv.DictReader(file):
        totals[row["region"]] += int(row["units"]) * float(row["price"])
with open("/app/totals.csv", "w") as file:
    print("region,revenue", file=file)
    for region in sorted(totals):
        print(f"{region},{totals[region]:.2f}", file=file)
