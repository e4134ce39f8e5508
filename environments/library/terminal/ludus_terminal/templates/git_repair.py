"""Git: undo, merge, squash, clean up and rewrite."""

from __future__ import annotations

from ludus_terminal.problem import Goal, Problem, State
from ludus_terminal.registry import template
from ludus_terminal.templates.history import History, branch_is, branch_keeps, clean, encoded, prose
from ludus_terminal.world import World


@template("git", "easy", "medium")
def git_undo(w: World) -> Problem:
    """Undo a commit by a new one."""
    h = History(w)
    paths = h.start(4)
    for _ in range(3):
        h.edit(w.r.choice(paths[1:]))
    bad_path = f"src/{w.word()}.txt"
    subject = f"Add the {w.prose(2)} by mistake"
    before = dict(h.files)
    h.commit(subject, {bad_path: prose(w, 3), paths[0]: h.files[paths[0]] + f"{w.prose(4)}\n"})
    for _ in range(w.by_level(0, 5, 0)):
        h.edit(w.r.choice(paths[1:]))
    head = h.head
    h.checkout("main")
    expected = encoded(
        {**{path: content for path, content in h.files.items() if path != bad_path}, paths[0]: before[paths[0]]}
    )

    def met(state: State) -> bool:
        repository = state.repository
        newest = repository.commit(repository.target("refs/heads/main") or "")
        return (
            newest is not None and newest.parents == (head,) and repository.files(newest.name) == expected
            and clean(state, "main") and bad_path not in state.tree
        )  # fmt: skip

    text = (
        f"The commit `{subject}` on `main` was a mistake. Undo its changes with one new commit on top of `main`. The "
        "history so far stays as it is" + ("." if w.level == "easy" else ", and so do the changes of later commits.")
    )
    commands = [f"git revert --no-edit $(git log --format=%H --grep='^{subject}$')"]
    changes = [bad_path, paths[0]]
    return Problem(w.tree, text, [Goal("a new commit undoes it", met)], commands, changes, [branch_keeps("main", head)])


@template("git", "medium", "hard", split="validation")
def git_merge(w: World) -> Problem:
    """Merge a branch with conflicts by rules."""
    h = History(w)
    names = w.words(6)
    branch = w.word()
    values = {name: w.r.randint(10, 99) for name in names}

    def settings(changed: dict[str, int]) -> str:
        return "".join(f"{name} = {value}\n\n" for name, value in {**values, **changed}.items())

    paths = h.start(3)
    h.commit("Add settings", {"settings.txt": settings({}), "NEWS.md": "# News\n"})
    base, base_files = h.head, dict(h.files)
    ours = {name: w.r.randint(100, 999) for name in names[:4]}
    theirs = {name: w.r.randint(100, 999) for name in names[2:]}
    while any(ours[name] == theirs[name] for name in names[2:4]):
        theirs = {name: w.r.randint(100, 999) for name in names[2:]}
    their_file, their_news, our_news = f"src/{w.word()}.txt", w.prose(4), w.prose(4)
    h.commit(f"Change settings for {branch}", {"settings.txt": settings(theirs), their_file: prose(w, 3)})
    h.commit("Write news", {"NEWS.md": f"# News\n- {their_news}\n"})
    branch_head, branch_files = h.head, dict(h.files)
    h.writer.refs[f"refs/heads/{branch}"] = branch_head
    h.head, h.files = base, base_files
    h.commit("Change settings", {"settings.txt": settings(ours)})
    h.edit(paths[0])
    if w.hard:
        h.commit("Write our news", {"NEWS.md": f"# News\n- {our_news}\n"})
    main = h.head
    h.checkout("main")
    merged = {**theirs, **ours}
    if w.hard:
        merged |= {name: max(ours[name], theirs[name]) for name in names[2:4]}
    expected = encoded({**h.files, their_file: branch_files[their_file], "settings.txt": settings(merged)})
    news = f"# News\n- {our_news}\n- {their_news}\n" if w.hard else branch_files["NEWS.md"]
    expected["NEWS.md"] = news.encode()
    text = f"Merge the branch `{branch}` into `main`, with a merge commit (two parents, `main` first). "
    if w.hard:
        text += (
            "If both changed a setting in `settings.txt`, the greater value counts. If both added lines to `NEWS.md`, keep "
            "all lines: first those of `main`, then those of the branch. "
        )
    else:
        text += "If both changed a setting in `settings.txt`, the value of `main` counts. "
    text += (
        "All other changes of both sides stay, also those of other settings, and the working tree is clean afterward."
    )

    def met(state: State) -> bool:
        repository = state.repository
        newest = repository.commit(repository.target("refs/heads/main") or "")
        return newest is not None and newest.parents == (main, branch_head) and clean(state, "main")

    def right(path: str) -> Goal:
        def same(state: State) -> bool:
            files = state.repository.files(state.repository.target("refs/heads/main")) or {}
            return met(state) and files.get(path) == expected[path]

        return Goal(f"{path} is merged", same)

    def exact(state: State) -> bool:
        return state.repository.files(state.repository.target("refs/heads/main")) == expected and met(state)

    resolved = "cat > settings.txt <<'EOF'\n" + settings(merged) + "EOF\n"
    if w.hard:
        resolved += "cat > NEWS.md <<'EOF'\n" + news + "EOF\n"
    commands = [f"git merge {branch}", resolved + f"git add -A && git commit -qm 'Merge {branch}'"]
    if not w.hard:
        commands = [f"git merge -q -X ours -m 'Merge {branch}' {branch}"]
    goals = [right("settings.txt"), right("NEWS.md"), Goal("all files are merged", exact)]
    changes = ["settings.txt", "NEWS.md"]
    return Problem(w.tree, text, goals, commands, changes, [branch_is(branch, branch_head), branch_keeps("main", main)])


@template("git", "medium", "hard", split="test")
def git_squash(w: World) -> Problem:
    """Make one commit of several."""
    h = History(w)
    paths = h.start(4)
    for _ in range(3):
        h.edit(w.r.choice(paths))
    base = h.head
    count = w.r.randint(3, 6)
    subject = f"Add the {w.prose(3)}"
    for number in range(count):
        h.edit(w.r.choice(paths), f"wip {number + 1}")
    squashed = dict(h.files)
    later: list[tuple[str, dict[str, bytes]]] = []
    if w.hard:
        for word in w.words(3):
            message = f"Write {word}"
            h.commit(message, {f"docs/{word}.txt": prose(w, 2)})
            later.append((message, encoded(h.files)))
    h.checkout("main")
    text = (
        f"The {count} commits `wip 1` to `wip {count}` on `main` belong together. Make a single commit of them, with the "
        f"message `{subject}`. The commits before them stay the same"
        + (", and the commits after them follow with their messages, authors and changes." if w.hard else ".")
        + " No file changes."
    )
    expected = [(subject, encoded(squashed)), *later]
    authors = [one.author for one in State(w.tree).repository.history(h.head)[: len(later)]]

    def met(state: State) -> bool:
        repository = state.repository
        history = repository.history(repository.target("refs/heads/main"))[: len(expected) + 1]
        new = history[:-1]
        return (
            history[-1].name == base
            and [(one.message.strip(), repository.files(one.name)) for one in reversed(new)] == expected
            and [one.author for one in new[: len(later)]] == authors
            and clean(state, "main")
        )

    commands = [f"git reset -q --soft HEAD~{count}; git commit -qm '{subject}'"]
    if w.hard:
        commands = [
            "cat > /tmp/e.sh <<'EOF'\nsed -i -e '/ wip 1$/!s/^pick \\(.* wip [0-9]*\\)$/fixup \\1/' \"$1\"\nEOF\n"
            f"GIT_SEQUENCE_EDITOR='sh /tmp/e.sh' git rebase -i {base} && "
            "cat > /tmp/r.sh <<'EOF'\nsed -i '/ wip 1$/s/^pick/reword/' \"$1\"\nEOF\n"
            f"GIT_SEQUENCE_EDITOR='sh /tmp/r.sh' GIT_EDITOR='echo \"{subject}\" >' git rebase -i {base}"
        ]
    return Problem(
        w.tree, text, [Goal("main has one commit instead", met)], commands, keeps=[branch_keeps("main", base)]
    )


@template("git", "medium", "hard")
def git_branch_cleanup(w: World) -> Problem:
    """Delete the branches that were merged."""
    h = History(w)
    paths = h.start(3)
    merged: list[str] = []
    kept: dict[str, str] = {}
    names = [f"{w.r.choice(('feature', 'fix', 'topic'))}/{word}" for word in w.words(w.by_level(0, 6, 10))]
    for number, name in enumerate(names):
        base, files = h.head, dict(h.files)
        added = f"src/{name.replace('/', '-')}.txt"
        content = prose(w, 2)
        tip = h.commit(h.subject(), {added: content})
        h.writer.refs[f"refs/heads/{name}"] = tip
        h.head, h.files = base, files
        if number % 2 == 0:
            h.edit(paths[0])
            h.commit(f"Merge branch '{name}'", {added: content}, tip)
            merged.append(name)
        elif w.hard and number % 4 == 1:
            h.commit(f"Merge branch '{name}' by hand", {added: content})  # the same change, without a merge
            kept[name] = tip
        else:
            kept[name] = tip
    h.edit(paths[1])
    h.checkout("main")
    text = (
        "Delete all local branches whose commits are all in the history of `main`. Keep `main` and all other branches"
        + (", also those whose changes are on `main` in other commits." if w.hard else ".")
    )
    goals = [Goal("all merged branches are gone", lambda state: not set(merged) & set(state.repository.branches))]

    def kept_all(state: State) -> bool:
        return all(state.repository.branches.get(name) == tip for name, tip in kept.items())

    commands = ["git branch --merged main --format='%(refname:short)' | grep -vx main | xargs git branch -d"]
    return Problem(w.tree, text, goals, commands, keeps=[branch_is("main", h.head), kept_all])


@template("git", "hard")
def git_purge(w: World) -> Problem:
    """Remove a file from all of the history."""
    h = History(w)
    paths = h.start(3)
    secret = f"config/{w.word()}.key"
    h.commit("Add the configuration", {secret: f"{w.r.getrandbits(128):032x}\n", "config/base.ini": prose(w, 3)})
    for number in range(6):
        if number == 3:
            h.commit("Renew the key", {secret: f"{w.r.getrandbits(128):032x}\n", paths[0]: prose(w, 5)})
        else:
            h.edit(w.r.choice(paths))
    original = State({**w.tree, **h.writer.entries("main", h.files, 0)}).repository
    expected = [
        (
            one.message.strip(),
            one.author,
            one.authored,
            {path: content for path, content in (original.files(one.name) or {}).items() if path != secret},
        )
        for one in original.history(h.head)
    ]
    h.checkout("main")
    text = (
        f"The key in `{secret}` must not be published. Rewrite the history of `main` so that no commit has this file; all "
        "commits stay, in their order, with their other files, messages, authors and dates of the author. The file is gone "
        "from the working tree, too, and there is nothing uncommitted."
    )

    def met(state: State) -> bool:
        repository = state.repository
        history = repository.history(repository.target("refs/heads/main"))
        found = [(one.message.strip(), one.author, one.authored, repository.files(one.name)) for one in history]
        return found == expected and secret not in state.tree and clean(state, "main")

    commands = [
        f"FILTER_BRANCH_SQUELCH_WARNING=1 git filter-branch --index-filter 'git rm -q --cached --ignore-unmatch {secret}' "
        "-- main > /dev/null"
    ]
    return Problem(w.tree, text, [Goal("the history has no key", met)], commands, [secret])


@template("git", "easy")
def git_commit_changes(w: World) -> Problem:
    """Commit some of the changes."""
    h = History(w)
    paths = h.start(4)
    h.edit(paths[3])
    h.checkout("main")
    changed, other, new = (
        h.files[paths[0]] + f"{w.prose(5)}\n",
        h.files[paths[1]] + f"{w.prose(5)}\n",
        f"src/{w.word()}.txt",
    )
    content = prose(w, 3)
    w.file(paths[0], changed)
    w.file(paths[1], other)
    w.file(new, content)
    subject = f"Describe the {w.prose(2)}"
    text = (
        f"Commit the change of `{paths[0]}` and the new file `{new}` on `main`, in one commit with the message "
        f"`{subject}`. The change of `{paths[1]}` stays in the working folder, and is not committed."
    )
    expected = encoded({**h.files, paths[0]: changed, new: content})
    head = h.head

    def met(state: State) -> bool:
        repository = state.repository
        newest = repository.commit(repository.target("refs/heads/main") or "")
        return (
            newest is not None and newest.parents == (head,) and newest.message.strip() == subject
            and repository.files(newest.name) == expected
        )  # fmt: skip

    commands = [f"git add {paths[0]} {new}; git commit -qm '{subject}'"]
    return Problem(w.tree, text, [Goal("the commit is right", met)], commands, keeps=[branch_keeps("main", head)])
