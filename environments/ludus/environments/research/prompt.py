"""The prompt: the rules of facts, the brief, the form of the report and how it is scored."""

from __future__ import annotations

from ludus.environments.research.columns import MISSING
from ludus.environments.research.report import CITED, LENGTH, SUMMARY_WORDS
from ludus.environments.research.sheet import Sheet
from ludus.environments.research.writer import title_of
from ludus.environments.search.world import RELATIONS


def prompt_of(sheet: Sheet, max_steps: int) -> str:
    """Return the prompt of a brief.

    Args:
        sheet: the sheet of the brief, of which only what the agent may know is used.
        max_steps: the most calls of an episode.
    """
    column, falling = sheet.brief.order
    target = RELATIONS[sheet.brief.columns[column][-1]].target
    first = ("latest" if falling else "earliest") if target in ("year", "date") else "greatest" if falling else "least"
    lines = [
        "Write a research report from an encyclopedia with an archive. They describe an invented country in 1990, so "
        "nothing that you know from elsewhere helps.",
        "",
        "TOOLS",
        "`search` finds pages by words. `open` shows a page by its id or its exact title. `check` says what is wrong "
        "with the form of a draft, as often as you like. `submit` hands in the report and ends the episode; a final "
        f"message without it earns nothing. You have {max_steps} calls.",
        "",
        "FACTS",
        "1. An article ends with the year of its last revision and the titles of the reports about it, if there are "
        "any. A report begins with the year of its publication. Read the article and all its reports for each entity "
        "that you write about.",
        "2. Where these pages state different values of one fact, the value on the page of the latest year holds, and "
        "you name the contradiction. Lists have no year and contradict nothing.",
        "3. A statement that says of itself that it is of an earlier time, wrong, a rumor, an offer or a plan states "
        "no value.",
        f"4. If neither the article nor a report states a fact, its value is `{MISSING}`, and so is every value that "
        "would follow from it.",
        "",
        "BRIEF",
        f"Subjects: {sheet.brief.scope}.",
        "Columns, each to be found for each subject:",
        *sheet.columns_explained(),
        "Questions, to be answered from the values that hold:",
        *sheet.questions_asked(),
        "",
        "FORM",
        f"The report has at most {LENGTH:,} characters, these headings, and under them nothing but what is said here:",
        "",
        f"# {title_of(sheet)}",
        "## Summary",
        f"{SUMMARY_WORDS[0]} to {SUMMARY_WORDS[1]} words of prose without square brackets or markup. It names "
        "the first subject of the table. Each number in it is also among the values of Findings, Contradictions or "
        "Conclusions.",
        "## Findings",
        "One line for each subject and column, the subjects in the alphabetical order of their titles, and under each "
        "the columns in the order above:",
        "- subject | column | value [id]",
        "## Contradictions",
        "One line for each fact that a finding rests on and that pages disagree about, or the one line `None.`:",
        "- entity | fact | value that holds [id] | other value [id]",
        "## Table",
        f"| Subject | {' | '.join(sheet.labels)} |",
        f"|{'---|' * (len(sheet.labels) + 1)}",
        f"One row for each subject with the values of its findings, ordered by `{sheet.labels[column]}`, the {first} "
        "first.",
        "## Conclusions",
        "One line for each question, with its number and the answer alone:",
        "1. answer",
        "",
        "Subjects, entities and values that are names are written as the titles of their articles, without square "
        "brackets. What a title has in parentheses belongs to it, because another entity has the same name. Write "
        "years like 1893, numbers in digits, dates like 14 March 1893.",
        "The ids after a value, such as [ab2c] or [ab2c] [k7fq], are the pages that prove it, each of which you have "
        "opened: in a finding, for each step from the subject to the value a page that states the value of that step "
        "which holds, and no other page. `Birthplace of founder` has two steps, the founder and then that person's "
        f"birthplace. `{MISSING}` is proved by the article of the entity about which the fact is not stated, after "
        f"the pages of the steps before it. A value has at most {CITED} ids.",
        "The fact of a contradiction is one step of a column, and its entity the one that it is about: a contradiction "
        "about the birthplace of the founder has the founder as its entity and `Birthplace` as its fact. It is named "
        "once, even if several findings rest on it.",
        "",
        "SCORE",
        "A line of Findings is right if its value and its ids are right. A wrong one, one that is not asked for, and "
        "each line about a cell that has several count against you as much as a right one counts for you, so leave "
        "out what you do not know. The share of the findings is right minus wrong lines, divided by all that are "
        "asked for, and at least 0. It makes half of the score. Contradictions, Table (each cell, and each row in its "
        "place) and Conclusions are counted in the same way, and make 0.15 each; the form makes 0.05. These four are "
        "multiplied by the share of the findings.",
    ]
    return "\n".join(lines)
