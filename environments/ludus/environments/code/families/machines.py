"""Simulate a small machine: a robot on a grid, a stack machine, or a machine with registers."""

from __future__ import annotations

import random
from typing import Any, Final

from ludus.environments.code.problem import Problem, Rule, function_source, key_of
from ludus.server import Difficulty


def draw(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Return a problem."""
    return rng.choice((_robot, _stack, _registers))(rng, difficulty)


def _robot(rng: random.Random, difficulty: Difficulty) -> Problem:
    size = rng.randint(4, 6)
    edge = rng.choice((
        Rule("stay", "A step that would leave the field is not made.",
             "if not (0 <= new_x < SIZE and 0 <= new_y < SIZE):\n    new_x, new_y = x, y"),
        Rule("wrap", "A step that leaves the field on one side enters it again on the opposite side.",
             "new_x, new_y = new_x % SIZE, new_y % SIZE"),
        Rule("bounce", "Instead of a step that would leave the field, the robot turns around and stays in its cell.",
             "if not (0 <= new_x < SIZE and 0 <= new_y < SIZE):\n    new_x, new_y, dx, dy = x, y, -dx, -dy"),
    ))  # fmt: skip
    commands = [
        Rule("L", "L turns the robot to the left by 90 degrees", "dx, dy = dy, -dx"),
        Rule("R", "R turns it to the right by 90 degrees", "dx, dy = -dy, dx"),
        Rule("F", "F moves it one cell forward", "step"),
    ]
    extras = [
        Rule("B", "B moves it one cell backward, without turning it", "back"),
        Rule("U", "U turns it around", "dx, dy = -dx, -dy"),
        Rule("J", "J moves it two cells forward, as two single steps", "jump"),
        Rule("H", "H brings it back to the cell in which it started, without turning it", "x, y = start"),
        Rule("N", "N turns it to face up", "dx, dy = 0, -1"),
    ]
    count = {"easy": 0, "medium": 1, "hard": 3}[difficulty]
    commands += rng.sample(extras, count)
    block = Rule("walls", "Cells in `walls` are blocked: a step into one is not made.", "") if (
        difficulty != "easy" and rng.random() < 0.6) else Rule("free", "", "")  # fmt: skip
    result = rng.choice((
        Rule("list[int]:place", "Return [x, y] of the robot at the end.", "return [x, y]"),
        Rule("list[object]:facing", 'Return [x, y, direction] at the end, where the direction is "up", "right", '
             '"down" or "left".',
             'names = {(0, -1): "up", (1, 0): "right", (0, 1): "down", (-1, 0): "left"}\n'
             "return [x, y, names[dx, dy]]"),
        Rule("list[list[int]]:visited", "Return the cells in which the robot was, as pairs [x, y] in the order of its "
             "first visits, the start included.", "return [list(cell) for cell in dict.fromkeys(path)]"),
        Rule("dict[str, int]:counts", 'Return a dictionary with the keys "cells" (the number of different cells in '
             'which the robot was, the start included), "x" and "y" (where it is at the end).',
             'return {"cells": len(set(path)), "x": x, "y": y}'),
        Rule("list[list[int]]:trace", "Return the list of the pairs [x, y] of the robot after each command.",
             "return trace"),
    ))  # fmt: skip
    walled = block.name == "walls"
    name = rng.choice(("run_robot", "drive", "steer", "follow_commands"))
    signature = (
        f"def {name}(commands: str{', walls: list[list[int]]' if walled else ''}) -> {result.name.partition(':')[0]}:"
    )
    steps = {"step": "[(dx, dy)]", "back": "[(-dx, -dy)]", "jump": "[(dx, dy), (dx, dy)]"}
    body = (
        "x, y = start = (0, 0)\ndx, dy = 1, 0\npath = [start]\ntrace = []\nfor command in commands:\n    moves = []\n"
    )
    for number, command in enumerate(commands):
        code = f"moves = {steps[command.code]}" if command.code in steps else command.code
        body += f'    {"el" if number else ""}if command == "{command.name}":\n        {code}\n'
        if command.name == "H":
            body += "        path.append(start)\n"
    body += "    for move_x, move_y in moves:\n        new_x, new_y = x + move_x, y + move_y\n"
    body += "".join(f"        {line}\n" for line in edge.code.replace("SIZE", str(size)).splitlines())
    if walled:
        body += "        if [new_x, new_y] in walls:\n            new_x, new_y = x, y\n"
    body += "        x, y = new_x, new_y\n        path.append((x, y))\n"
    if edge.name == "bounce":
        body = body.replace("[(dx, dy), (dx, dy)]", "[None, None]").replace(
            "    for move_x, move_y in moves:\n",
            "    for move in moves:\n        move_x, move_y = move or (dx, dy)\n",
        )
    body += "    trace.append([x, y])\n" + result.code
    if "trace" not in result.code:
        body = body.replace("trace = []\n", "").replace("    trace.append([x, y])\n", "")
    if "path" not in result.code:
        body = body.replace("path = [start]\n", "").replace("        path.append((x, y))\n", "")
        body = body.replace("        path.append(start)\n", "")
    letters = "".join(command.name for command in commands)

    def sample(rng: random.Random, scale: int) -> tuple[Any, ...]:
        text = "".join(rng.choice(letters + "FF") for _ in range(rng.randint(*((4, 7), (8, 20), (60, 90))[scale])))
        cells = [[x, y] for x in range(size) for y in range(size) if x or y]
        return (text, *([sorted(rng.sample(cells, rng.randint(2, 6)))] if walled else []))

    rules = [
        f"The field has {size} × {size} cells. The robot starts in the cell x = 0, y = 0 at the upper left and faces "
        f"right; x grows to the right to {size - 1}, and y downward to {size - 1}.",
        "The commands are letters, carried out one after the other: "
        + "; ".join(command.text for command in commands) + ".",
        edge.text, *([block.text] if walled else []), result.text,
    ]  # fmt: skip
    extra = ([[1, 0]],) if walled else ()
    return Problem(
        key=key_of("machines-robot", edge, *sorted(command.name for command in commands[3:]), block, result),
        group=key_of("machines-robot", edge, result),
        entry=name, signature=signature, intro="Steer a robot over a field.", rules=tuple(rules),
        reference=function_source(signature, body),
        edges=(("", *extra), ("FF", *extra), ("F" * 9, *extra), ("RFFLFFRF", *extra)), sample=sample,
    )  # fmt: skip


_STACK: Final = (
    Rule("add", "add removes the two top numbers and pushes their sum", "a + b"),
    Rule("sub", "sub removes the top number b and then the next one a, and pushes a - b", "a - b"),
    Rule("mul", "mul removes the two top numbers and pushes their product", "a * b"),
    Rule("max", "max removes the two top numbers and pushes the greater one", "max(a, b)"),
    Rule("mod", "mod removes the top number b and then the next one a, and pushes a modulo 7 plus b", "a % 7 + b"),
    Rule("lt", "lt removes the top number b and then the next one a, and pushes 1 if a < b, else 0",
         "1 if a < b else 0"),
    Rule("dup", "dup pushes a copy of the top number", "a, a"),
    Rule("neg", "neg changes the sign of the top number", "-a,"),
    Rule("drop", "drop removes the top number", "()"),
    Rule("inc", "inc adds 1 to the top number", "a + 1,"),
    Rule("swap", "swap exchanges the two top numbers", "(b, a)"),
    Rule("over", "over pushes a copy of the number below the top", "(a, b, a)"),
)  # fmt: skip
_ONE: Final = ("dup", "neg", "drop", "inc")


def _stack(rng: random.Random, difficulty: Difficulty) -> Problem:
    chosen = rng.sample(_STACK, {"easy": 3, "medium": 5, "hard": 7}[difficulty])
    short = rng.choice((
        Rule("error", "If the stack holds too few numbers for an instruction, raise ValueError.",
             'raise ValueError(f"too few numbers for {word}")'),
        Rule("skip", "An instruction for which the stack holds too few numbers has no effect.", "continue"),
        Rule("stop", "If the stack holds too few numbers for an instruction, stop there, as if the program had ended.",
             "break"),
        Rule("zero", "An instruction for which the stack holds too few numbers replaces all of them by a single 0.",
             "stack = [0]\n        continue"),
    ))  # fmt: skip
    most = rng.randint(4, 6)
    full = Rule("none", "", "") if difficulty == "easy" else rng.choice((
        Rule("none", "", ""),
        Rule("forget", f"If the stack then holds more than {most} numbers, the lowest ones are removed until it holds "
             f"{most}.", f"stack = stack[-{most}:]"),
        Rule("wrap", "If the top number is then not between -99 and 99, it becomes 0.",
             "if stack and abs(stack[-1]) > 99:\n        stack[-1] = 0"),
    ))  # fmt: skip
    result = rng.choice((
        Rule("list[int]:stack", "Return the stack as a list, the top number last.", "return stack"),
        Rule("int:sum", "Return the sum of the numbers on the stack, plus 1000 times their count.",
             "return sum(stack) + 1000 * len(stack)"),
        Rule("list[int]:tops", "Return a list with the top number after each instruction that was carried out, as far "
             "as the stack was not empty then.", "return tops"),
    ))  # fmt: skip
    name = rng.choice(("run_program", "execute", "interpret", "run_stack"))
    signature = f"def {name}(program: str) -> {result.name.partition(':')[0]}:"
    body = "stack = []\ntops = []\nfor word in program.split():\n"
    body += '    if word.removeprefix("-").isdigit():\n        stack.append(int(word))\n'
    for rule in chosen:
        need = 1 if rule.name in _ONE else 2
        take = "a = stack.pop()" if need == 1 else "b, a = stack.pop(), stack.pop()"
        many = rule.code.endswith(",") or rule.code.startswith("(") or "," in rule.code and "max" not in rule.code
        push = f"stack.extend(({rule.code.strip('()')}))" if many else f"stack.append({rule.code})"
        if rule.name == "drop":
            take, push = "stack.pop()", ""
        lines = [f'    elif word == "{rule.name}":', f"        if len(stack) < {need}:", f"            {short.code}"]
        body += "\n".join((*lines, f"        {take}", *([f"        {push}"] if push else []))) + "\n"
    body = body.replace("stack = [0]\n        continue", "stack = [0]\n            continue")
    if full.code:
        body += f"    {full.code}\n"
    body += "    if stack:\n        tops.append(stack[-1])\n" + result.code
    if "tops" not in result.code:
        body = body.replace("tops = []\n", "").replace("    if stack:\n        tops.append(stack[-1])\n", "")

    def sample(rng: random.Random, scale: int) -> tuple[str]:
        tokens, height = [], 0
        for _ in range(rng.randint(*((5, 7), (9, 18), (50, 70))[scale])):
            rule = rng.choice(chosen)
            if height < (1 if rule.name in _ONE else 2) and rng.random() < 0.97 or rng.random() < 0.4:
                tokens.append(str(rng.randint(-3, 12)))
                height += 1
            else:
                tokens.append(rule.name)
                height += {"dup": 1, "over": 1, "neg": 0, "inc": 0, "swap": 0}.get(rule.name, -1)
        return (" ".join(tokens),)

    one = chosen[0].name
    return Problem(
        key=key_of("machines-stack", *sorted(rule.name for rule in chosen), short, full, result),
        entry=name, signature=signature, intro="Run a program of a machine with a stack, which is empty at first.",
        rules=(
            "The program has instructions, separated by spaces, which are carried out one after the other. An integer "
            "such as 7 or -3 is pushed onto the stack. " + "; ".join(rule.text for rule in chosen) + ".",
            short.text,
            *([f"After each instruction: {full.text}"] if full.text else []),
            result.text,
        ),
        reference=function_source(signature, body),
        edges=(("",), ("5",), (one,), (f"4 {one}",), (f"4 9 {one} 2 {chosen[-1].name}",)), sample=sample,
    )  # fmt: skip


def _registers(rng: random.Random, difficulty: Difficulty) -> Problem:
    limit, base = rng.choice((30, 50, 80)), rng.choice((50, 100, 1000))
    pool = [
        Rule("add", "[\"add\", x, y] adds the value of y to x", "registers[x] += value(y)"),
        Rule("sub", "[\"sub\", x, y] subtracts the value of y from x", "registers[x] -= value(y)"),
        Rule("mul", f"[\"mul\", x, y] multiplies x by the value of y, modulo {base}",
             f"registers[x] = registers[x] * value(y) % {base}"),
        Rule("min", "[\"min\", x, y] sets x to the smaller one of x and the value of y",
             "registers[x] = min(registers[x], value(y))"),
        Rule("swap", "[\"swap\", x, y] exchanges the values of the registers x and y",
             "if y in registers:\n            registers[x], registers[y] = registers[y], registers[x]"),
        Rule("rem", "[\"rem\", x, y] sets x to x modulo 9 plus the value of y", "registers[x] = registers[x] % 9 + value(y)"),
    ]  # fmt: skip
    jumps = [
        Rule("jpos", '["jpos", x, n] goes n instructions on from itself if x is greater than 0', "> 0"),
        Rule("jzero", '["jzero", x, n] goes n instructions on from itself if x is 0', "== 0"),
        Rule("jodd", '["jodd", x, n] goes n instructions on from itself if x is odd', "% 2 == 1"),
    ]
    chosen = rng.sample(pool[:4] if difficulty == "easy" else pool, {"easy": 2, "medium": 3, "hard": 4}[difficulty])
    if "swap" in [rule.name for rule in chosen]:
        chosen = [rule if rule.name != "swap" else rule._replace(
            text=rule.text + " (nothing happens if y is a number)") for rule in chosen]  # fmt: skip
    jumping = rng.sample(jumps, {"easy": 0, "medium": 1, "hard": 2}[difficulty])
    result = rng.choice((
        Rule("dict[str, int]:all", "Return a dictionary of the registers.", "return registers"),
        Rule("list[int]:values", "Return the list of the values of a, b and c, followed by the number of instructions "
             "that were carried out.", 'return [registers["a"], registers["b"], registers["c"], steps]'),
        Rule("list[int]:history", "Return the list of the values of a after each instruction that was carried out.",
             "return history"),
    ))  # fmt: skip
    start = rng.choice(((0, 0, 0), (1, 0, 0), (1, 2, 3)))
    name = rng.choice(("run_machine", "simulate", "run_registers", "emulate"))
    signature = f"def {name}(program: list[list[object]]) -> {result.name.partition(':')[0]}:"
    body = (
        f'registers = {{"a": {start[0]}, "b": {start[1]}, "c": {start[2]}}}\n\ndef value(y):\n'
        "    return registers[y] if y in registers else y\n\nplace = 0\nsteps = 0\nhistory = []\n"
        f"while 0 <= place < len(program) and steps < {limit}:\n    name, x, y = program[place]\n    place += 1\n"
        '    if name == "set":\n        registers[x] = value(y)\n'
    )
    for rule in chosen:
        body += f'    elif name == "{rule.name}":\n        {rule.code}\n'
    for rule in jumping:
        body += f'    elif name == "{rule.name}" and registers[x] {rule.code}:\n        place += y - 1\n'
    body += '    steps += 1\n    history.append(registers["a"])\n' + result.code
    if "history" not in result.code:
        body = body.replace("history = []\n", "").replace('    history.append(registers["a"])\n', "")

    def sample(rng: random.Random, scale: int) -> tuple[list[list[Any]]]:
        count = rng.randint(*((3, 5), (6, 11), (25, 35))[scale])
        program: list[list[Any]] = []
        for at in range(count):
            if jumping and rng.random() < 0.25:
                program.append([rng.choice(jumping).name, rng.choice("abc"), rng.choice((2, 3, -1, -2, 2 - at))])
                continue
            operand = rng.choice(("a", "b", "c", rng.randint(-4, 9), rng.randint(1, 9)))
            program.append([rng.choice(["set", *(rule.name for rule in chosen)]), rng.choice("aabc"), operand])
        return (program,)

    first = [chosen[0].name, "a", 4]
    return Problem(
        key=key_of("machines-registers", *sorted(rule.name for rule in (*chosen, *jumping)), result, start),
        group=key_of("machines-registers", result),
        entry=name, signature=signature,
        intro=f"Run a program of a machine with the registers a, b and c, which hold {start[0]}, {start[1]} and "
        f"{start[2]} at first.",
        rules=(
            "The program is a list of instructions; x is the name of a register, and y the name of a register or an "
            'integer, whose value is the integer itself. ["set", x, y] sets x to the value of y; '
            + "; ".join(rule.text for rule in (*chosen, *jumping)) + "."
            + " In other cases, the next instruction follows." * bool(jumping),
            f"The machine stops behind the last instruction{', before the first one,' * bool(jumping)} or after "
            f"{limit} instructions.",
            result.text,
        ),
        reference=function_source(signature, body),
        edges=(([],), ([["set", "a", 5]],), ([["set", "b", 3], ["set", "a", "b"], first],), ([first, first],)),
        sample=sample,
    )  # fmt: skip
