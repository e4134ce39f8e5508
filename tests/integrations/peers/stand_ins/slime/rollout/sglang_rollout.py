"""slime's state of a rollout."""


class GenerateState:
    """Holds the tokenizer that the program has set."""

    tokenizer = None

    def __init__(self, args):
        self.args = args
