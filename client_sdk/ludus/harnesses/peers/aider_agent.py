"""Play an episode with aider: it runs the shell commands that its model suggests, and shows it what they print."""

import json
import sys

from aider.coders import Coder
from aider.io import InputOutput
from aider.models import Model

GO_ON = "Go on. Suggest no shell command when you are done."


class Agreeing(InputOutput):
    """Agrees to everything. aider's own option to do so leaves out the commands."""

    def confirm_ask(self, question, default="y", subject=None, **options):
        """Agree."""
        return True


def main():
    """Play the episode: one message after another, until the model suggests no command."""
    task = json.loads(sys.stdin.readline())
    io = Agreeing(yes=True, pretty=False, fancy_input=False, input_history_file=None, chat_history_file=None)
    model = Model(f"openai/{task['model']}")
    model.reminder = None  # it moves to the end of each prompt, so that each turn would be a new sample
    coder = Coder.create(
        main_model=model, io=io, edit_format="diff", use_git=False, map_tokens=0, stream=False, auto_lint=False,
        suggest_shell_commands=True, detect_urls=False,
    )  # fmt: skip
    message = task["prompt"]
    while message:
        coder.shell_commands = []
        coder.run(with_message=message, preproc=False)
        message = GO_ON if coder.shell_commands and coder.partial_response_content else ""


if __name__ == "__main__":
    main()
