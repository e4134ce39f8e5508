"""Record episodes of TextArena with its own loop: the orders come as JSON on standard input, episodes go out as JSON.

An order is `{"id", "players", "player", "seed", "turns"}`; the recorded player and its opponents choose at random among
the moves that they see, and the recorded player sometimes says something else.
"""

import json
import random
import re
import sys
import warnings

import textarena

HEADING = re.compile(r"\b(?:available|valid|legal|possible|allowed)\b[^\n]*\b(?:moves?|actions?)\b", re.IGNORECASE)
SAYINGS = ["", "I do not know.", "[]", "[999]", "[0 0]"]


def choices(env, text):
    start = 0
    for heading in HEADING.finditer(text):
        start = heading.start()
    names = {"[GAME]"} | {"[" + str(name) + "]" for name in env.state.role_mapping.values()}
    for part in (text[start:], text):
        found = []
        for move in re.findall(r"\[[^\[\]\n]{1,60}\]", part):
            if move not in names and move not in found:
                found.append(move)
        if found:
            return found
    return ["[pass]"]


def record(order):
    actions = []
    try:
        return play(order, actions)
    except Exception as error:
        return {"order": order, "actions": actions, "raised": "%s: %s" % (type(error).__name__, str(error)[:200])}


def play(order, actions):
    seed, me = order["seed"], order["player"]
    random.seed(seed)
    env = textarena.make(order["id"])
    env.reset(num_players=order["players"], seed=seed)
    opponents = {}
    mine = random.Random("agent %d" % seed)
    seen, done, waited = [], False, 0
    while not done:
        player, text = env.get_observation()
        if player == me:
            seen.append(text)
            if len(actions) == order["turns"]:
                break
            action = mine.choice(SAYINGS) if mine.random() < 0.1 else mine.choice(choices(env, text))
            actions.append(action)
            waited = 0
        else:
            if player not in opponents:
                opponents[player] = random.Random("%d/%d" % (seed, player))
            action = opponents[player].choice(choices(env, text))
            waited += 1
            if waited == 200:
                raise RuntimeError("the opponents play on without the agent")
        done, _ = env.step(action=action)
    reward = env.close()[0][me] if done else None
    return {"order": order, "seen": seen, "actions": actions, "done": done, "reward": reward}


def main():
    warnings.simplefilter("ignore")
    out = sys.stdout
    sys.stdout = sys.stderr  # games print
    for order in json.load(sys.stdin):
        out.write(json.dumps(record(order)) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
