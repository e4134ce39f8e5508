"""Git: find, tag, restore and bring over commits."""

from __future__ import annotations

from ludus_terminal.problem import Goal, Problem, State, data_is, folder_is, text_is
from ludus_terminal.registry import template
from ludus_terminal.templates.history import History, branch_is, branch_keeps, clean, encoded, prose
from ludus_terminal.world import World


@template("git", "easy", "medium", split="validation")
def git_restore_file(w: World) -> Problem:
    """Bring back a file that was deleted."""
    h = History(w)
    paths = h.start(5)
    lost = paths[0]
    for _ in range(w.by_level(2, 5, 0)):
        h.edit(lost)
        h.edit(w.r.choice(paths[1:]))
    last = h.files[lost]
    h.commit(f"Remove {w.prose(2)}", {lost: None})
    for _ in range(w.by_level(1, 6, 0)):
        h.edit(w.r.choice(paths[1:]))
    if w.level == "medium":
        h.commit("Add a note", {lost: "moved\n"})
        h.commit("Remove the note", {lost: None})
        h.edit(paths[1])
    h.checkout("main")
    text = f"In this git repository, the file `{lost}` was deleted in an earlier commit. "
    keeps = [branch_keeps("main", h.head)]
    if w.level == "easy":
        text += (
            "Restore it in the working folder, with the content that it had right before it was deleted. Do not commit."
        )
        goals = [data_is(lost, last.encode())]
        commands = [f'git checkout "$(git rev-list -n 1 HEAD -- {lost})^" -- {lost}']
        return Problem(w.tree, text, goals, commands, [lost], [*keeps, branch_is("main", h.head)])
    text += (
        "It came back for a short time as a note of one line, and was deleted again. Restore the last content that it had "
        "before its first deletion, and commit it on `main` in one new commit."
    )
    expected = encoded({**h.files, lost: last})

    def met(state: State) -> bool:
        repository = state.repository
        history = repository.history(repository.target("refs/heads/main"))
        return (
            history[0].parents == (h.head,) and repository.files(history[0].name) == expected and clean(state, "main")
        )

    commands = [
        f'c=$(git log --diff-filter=D --format=%H -- {lost} | tail -1); git checkout "$c^" -- {lost}; '
        "git commit -qm 'Restore the file'",
    ]
    return Problem(w.tree, text, [Goal("main has the file in one new commit", met)], commands, [lost], keeps)


@template("git", "easy", "medium", "hard")
def git_find_commit(w: World) -> Problem:
    """Find the commit that brought a text."""
    h = History(w)
    paths = h.start(5)
    token = f"{w.word()}_{w.r.randint(100, 999)}"
    for _ in range(w.by_level(4, 8, 10)):
        h.edit(w.r.choice(paths[1:]))
    path = paths[0]
    with_token = h.files[path] + f"use {token} here\n"
    found = h.commit(h.subject(), {path: with_token})
    if w.level != "easy":  # commits that touch the line, or move or remove it
        h.commit(h.subject(), {path: with_token.replace("here", "there")})
        for _ in range(4):
            h.edit(w.r.choice(paths[1:]))
        moved = f"src/{w.word()}.txt"
        h.commit("Move a file", {path: None, moved: h.files[path]})
    if w.hard:
        h.commit(h.subject(), {moved: h.files[moved].replace(f"use {token} there\n", "")})
        for _ in range(3):
            h.edit(w.r.choice(paths[1:]))
        h.commit(h.subject(), {paths[1]: h.files[paths[1]] + f"again {token}\n"})
    for _ in range(w.by_level(3, 6, 8)):
        h.edit(w.r.choice(paths[2:]))
    h.checkout("main")
    text = (
        f"Find the commit on `main` in which the text `{token}` appeared in a file for the first time, and write its full "
        "hash (40 digits) into `commit.txt`."
    )
    if w.level != "easy":
        text += " The line was changed and moved to another file afterward."
    commands = [f"git log --reverse --format=%H -S{token} | head -1 > commit.txt"]
    return Problem(w.tree, text, [text_is("commit.txt", found)], commands, keeps=[branch_is("main", h.head)])


@template("git", "easy", "medium", split="test")
def git_tag_release(w: World) -> Problem:
    """Tag a commit and make a branch there."""
    h = History(w)
    paths = h.start(4)
    for _ in range(3):
        h.edit(w.r.choice(paths))
    version = f"{w.r.randint(1, 9)}.{w.r.randint(0, 20)}"
    released = h.commit(f"Release {version}", {"VERSION": f"{version}.0\n"})
    for _ in range(4):
        h.edit(w.r.choice(paths))
    h.commit("Release later", {"VERSION": f"{version}.1\n"})
    h.edit(paths[0])
    h.checkout("main")
    branch = f"{w.word()}-{version}"

    def tagged(state: State) -> bool:
        return state.repository.target(f"refs/tags/v{version}") == released

    def annotated(state: State) -> bool:
        name = state.repository.refs.get(f"refs/tags/v{version}", "")
        content = state.repository.object(name, "tag")
        message = (content or b"").decode("utf-8", "replace").partition("\n\n")[2]
        return tagged(state) and message.strip() == f"Version {version}"

    def branched(state: State) -> bool:
        return state.repository.target(f"refs/heads/{branch}") == released

    text = (
        f"Give the commit with the message `Release {version}` the "
        + (
            f"annotated tag `v{version}` with the message `Version {version}`"
            if w.level == "medium"
            else f"tag `v{version}`"
        )
        + f", and create the branch `{branch}` at the same commit. Stay on `main`."
    )
    goals = [
        Goal("the tag is right", annotated if w.level == "medium" else tagged),
        Goal("the branch is right", branched),
    ]
    options = f"-a -m 'Version {version}' " if w.level == "medium" else ""
    commands = [
        f"c=$(git log --format=%H --grep='^Release {version}$'); git tag {options}v{version} $c; git branch {branch} $c"
    ]
    keeps = [branch_is("main", h.head), lambda state: state.repository.branch == "main"]
    return Problem(w.tree, text, goals, commands, keeps=keeps)


@template("git", "medium", "hard")
def git_cherry_pick(w: World) -> Problem:
    """Bring some commits of a branch to main."""
    h = History(w)
    paths = h.start(4)
    for _ in range(3):
        h.edit(w.r.choice(paths[1:3]))
    base, base_files = h.head, dict(h.files)
    branch = w.word()
    changes: list[tuple[str, str, str]] = []
    for number in range(w.by_level(0, 4, 7)):
        path = f"lib/{w.word()}.txt"
        subject = f"{'Fix' if number % 2 == 0 else 'Add'} the {w.prose(2)} {number}"
        content = prose(w, 4)
        h.commit(subject, {path: content})
        changes.append((subject, path, content))
    branch_head = h.head
    h.writer.refs[f"refs/heads/{branch}"] = branch_head
    h.head, h.files = base, base_files
    h.edit(paths[3])
    main = h.head
    h.checkout("main")
    chosen = [change for change in changes if change[0].startswith("Fix")] if w.hard else changes[:1]
    expected = encoded({**h.files, **{path: content for _, path, content in chosen}})
    authors = {subject: _author(h, branch_head, subject, w) for subject, _, _ in chosen}

    def met(state: State) -> bool:
        repository = state.repository
        history = repository.history(repository.target("refs/heads/main"))[: len(chosen) + 1]
        new = list(reversed(history[:-1]))
        return (
            history[-1].name == main
            and [one.message.strip() for one in new] == [subject for subject, _, _ in chosen]
            and all(one.author == authors[one.message.strip()] for one in new)
            and all(len(one.parents) == 1 for one in new)
            and repository.files(history[0].name) == expected
            and clean(state, "main")
        )

    if w.hard:
        text = (
            f"Bring all commits of the branch `{branch}` whose message begins with `Fix` to `main`, as single commits on "
            "top of it, in their order on the branch."
        )
        commands = [f"git cherry-pick $(git log --reverse --format=%H --grep='^Fix' main..{branch})"]
    else:
        text = f"Bring the commit `{chosen[0][0]}` of the branch `{branch}`, and no other one, to `main`, as one commit on top of it."
        commands = [f"git cherry-pick $(git log --format=%H --grep='^{chosen[0][0]}$' {branch}) > /dev/null"]
    text += f" Messages and authors stay the same, and so does the branch `{branch}`."
    return Problem(
        w.tree, text, [Goal("main has the commits", met)], commands,
        keeps=[branch_is(branch, branch_head), branch_keeps("main", main)],
    )  # fmt: skip


def _author(h: History, head: str, subject: str, w: World) -> str:
    entries = h.writer.entries("main", {}, 0)
    history = State(entries).repository.history(head)
    return next(one.author for one in history if one.message.strip() == subject)


@template("git", "hard")
def git_bisect(w: World) -> Problem:
    """Find the commit that broke a check."""
    h = History(w)
    limit = w.r.randint(50, 90)
    check = (
        "#!/bin/bash\n# Exits with 0 if the prices are right.\ntotal=0\nwhile IFS=, read -r name price; do\n"
        "  total=$((total + price))\ndone < prices.csv\n" + f"[ $((total % 97)) -lt {limit} ]\n"
    )
    prices = {word: w.r.randint(1, 400) for word in w.words(12)}

    def render() -> str:
        return "".join(f"{name},{price}\n" for name, price in prices.items())

    def good() -> bool:
        return sum(prices.values()) % 97 < limit

    while not good():
        prices[next(iter(prices))] += 1
    h.commit("Start the project", {"check.sh": check, "prices.csv": render(), "README.md": f"# {w.project}\n"})
    count, broken_at, found = 30, w.r.randint(8, 25), ""
    for number in range(count):
        if number % 3 == 2 and number != broken_at:
            h.commit(h.subject(), {"README.md": h.files["README.md"] + f"{w.prose(6)}\n"})
            continue
        name = w.r.choice(list(prices))
        while True:
            prices[name] = w.r.randint(1, 400)
            if good() == (number < broken_at):
                break
            name = w.r.choice(list(prices))
        commit = h.commit(h.subject(), {"prices.csv": render()})
        found = commit if number == broken_at else found
    h.checkout("main")
    text = (
        "The script `./check.sh` exits with 0 in the first commit of `main` and with another code in the newest one. Find "
        "the first commit in which it fails (it fails in all later ones, too), and write its full hash into `broken.txt`. "
        "Leave the repository on `main`, with no changed files."
    )
    commands = [
        "git bisect start HEAD $(git rev-list --max-parents=0 HEAD) > /dev/null; git bisect run ./check.sh | "
        "grep -oE '^[0-9a-f]{40} is the first' | cut -c1-40 > broken.txt; git bisect reset; cat broken.txt"
    ]
    keeps = [branch_is("main", h.head), lambda state: state.repository.branch == "main"]
    return Problem(w.tree, text, [text_is("broken.txt", found)], commands, keeps=keeps)


@template("git", "easy", "medium")
def git_count_commits(w: World) -> Problem:
    """Count the commits of an author."""
    h = History(w)
    paths = h.start(4)
    for _ in range(w.by_level(10, 24, 0)):
        h.edit(w.r.choice(paths))
    h.checkout("main")
    history = State(w.tree).repository.history(h.head)
    authors = sorted({one.author for one in history})
    author = w.r.choice(authors)
    name = author.split(" <")[0]
    if w.level == "easy":
        count = sum(one.author == author for one in history)
        text = f"Count the commits on `main` whose author is {name}, and write the number into `count.txt`."
        commands = [f"git log --author='{name} <' --format=%H | wc -l > count.txt"]
        return Problem(w.tree, text, [text_is("count.txt", str(count))], commands, keeps=[branch_is("main", h.head)])
    path = w.r.choice(paths)
    touched = [
        one
        for one in history
        if (before := State(w.tree).repository.files(one.parents[0]) if one.parents else {}) is not None
        and (State(w.tree).repository.files(one.name) or {}).get(path) != before.get(path)
    ]
    rows = [f"{one.name[:40]} {one.author.split(' <')[0]}" for one in touched]
    text = (
        f"Write all commits on `main` that changed `{path}` (its first one included) into `changes.txt`, the newest first: "
        "on each line the full hash, a space, and the name of the author."
    )
    commands = [f"git log --format='%H %an' -- {path} > changes.txt"]
    goal = Goal("changes.txt is right", lambda state: state.text("changes.txt") == "\n".join(rows))
    return Problem(w.tree, text, [goal], commands, keeps=[branch_is("main", h.head)])


@template("git", "easy", "medium")
def git_export_version(w: World) -> Problem:
    """Write files as they were in a tagged version."""
    h = History(w)
    paths = h.start(5)
    for _ in range(3):
        h.edit(w.r.choice(paths))
    version = f"v{w.r.randint(1, 9)}.{w.r.randint(0, 20)}"
    removed = paths[4]
    tagged = h.commit(h.subject(), {paths[0]: prose(w, 4), f"docs/{w.word()}.md": prose(w, 2)})
    h.writer.refs[f"refs/tags/{version}"] = tagged
    sources = {path.removeprefix("src/"): h.files[path].encode() for path in paths}
    h.commit(h.subject(), {removed: None, f"src/{w.word()}.txt": prose(w, 3)})
    for path in (*paths[:4], paths[0]):
        h.edit(path)
    h.writer.refs[f"refs/tags/{version}.1"] = h.head
    h.edit(paths[1])
    h.checkout("main")
    folder = w.word()
    keeps = [branch_is("main", h.head), lambda state: state.repository.branch == "main"]
    if w.level == "easy":
        name = w.r.choice(paths[:4])
        target = f"{folder}-{version}.txt"
        text = (
            f"Write the file `{name}` as it was in the version with the tag `{version}` into the new file `{target}`. The "
            "branch `main` and all files in the working folder stay as they are."
        )
        content = sources[name.removeprefix("src/")]
        commands = [f"git show {version}:{name} > {target}"]
        return Problem(w.tree, text, [data_is(target, content)], commands, keeps=keeps)
    text = (
        f"Write all files of the folder `src` as they were in the version with the tag `{version}` into the new folder "
        f"`{folder}`, directly and under the same names. The branch `main` and all files in the working folder stay as they are."
    )
    commands = [f"mkdir {folder}; git archive {version} src | tar -x -C {folder} --strip-components=1"]
    return Problem(w.tree, text, [folder_is(folder, sources)], commands, keeps=keeps)
