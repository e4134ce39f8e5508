"""`ludus generate`: new tasks of an environment, and new environments, that are kept only if they pass every check.

How this works. `propose`, `template`, `backtranslate` and `hops` make candidates; `duplicates` and `playing` judge
them; `tasks` runs both until enough are kept, and `report` counts what happened to each. `model` is the only place that
talks to a model, within a budget, and `journal` keeps every reply and verdict, so that a run that was killed goes on
without paying twice. `package` writes environments, whose code runs only in a sandbox (`box`).
"""
