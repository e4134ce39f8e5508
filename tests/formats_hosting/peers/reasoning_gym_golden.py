"""Record problems of reasoning-gym and the scores of answers, with `score_answer` itself.

The orders come as JSON on standard input: `{"name", "seed", "size", "config", "index", "answers"}`, where `answers` is
the number of answers: right ones, almost right ones, those of other problems, malformed ones and an empty one.
"""

import json
import random
import sys
import warnings

from reasoning_gym.factory import DATASETS

MALFORMED = [
    "",
    " ",
    "x",
    "1/0",
    "[[1,2],[3]]",
    "\x00",
    "{",
    "()",
    "-1",
    "nan",
    "inf",
    "None",
    "null",
    "9" * 60,
    "a\nb",
]


def answers_of(dataset, entry, count, rng):
    right = entry["answer"]
    other = dataset[(entry["metadata"].get("source_index", 0) + 1) % len(dataset)]["answer"]
    found = []
    if isinstance(right, str):
        found = [right, " %s\n" % right, "The answer is %s." % right, right.upper(), right[:-1], right + "0"]
    if isinstance(other, str):
        found += [other, "<answer>%s</answer>" % other]
    found += rng.sample(MALFORMED, len(MALFORMED))
    if 0 < count < len(found):
        found = [found[0]] + rng.sample(found[1:], count - 1)
    return (found * count)[:count]


def record(order):
    made, config = DATASETS[order["name"]]
    dataset = made(config=config(seed=order["seed"], size=order["size"], **order.get("config", {})))
    entry = dataset[order["index"]]
    scores = []
    for answer in answers_of(dataset, entry, order["answers"], random.Random(order["index"])):
        try:
            scores.append([answer, float(dataset.score_answer(answer, entry)), ""])
        except Exception as error:
            scores.append([answer, None, type(error).__name__])
    return {"order": order, "question": entry["question"], "scores": scores}


def main():
    warnings.simplefilter("ignore")
    out = sys.stdout
    sys.stdout = sys.stderr
    for order in json.load(sys.stdin):
        out.write(json.dumps(record(order)) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
