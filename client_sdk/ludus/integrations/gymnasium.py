"""Gymnasium: the environments of a Ludus server as `gymnasium.Env`.

    from ludus.integrations.gymnasium import LudusEnv

    env = LudusEnv("http://127.0.0.1:8000", "guess_number", action="guess:number=1..100000")
    observation, info = env.reset(seed=7)

`ludus export --form gymnasium` writes a package that registers an environment, so that `gymnasium.make` finds it.

* An observation is a text: the prompt after `reset`, and what the environment answers after `step`.
* `reset(seed=…)` is the seed of the episode, and it also draws the task. `options` may name the task.
* `terminated` and `truncated` follow from the end reason. The rewards of an episode add up to its total.
* An action that the environment refuses is an error observation, and the episode goes on.
* An unscored episode raises its failure; Gymnasium has no other way to say that there is no reward.
"""

from __future__ import annotations

import re
from typing import Any, Final

from ludus.client import Answer, ServerAddress
from ludus.client.connecting import TOKEN_VARIABLE
from ludus.client.local_server import LocalServer
from ludus.integrations.gymnasium_spaces import UnicodeText, actions_of
from ludus.integrations.peers import require
from ludus.integrations.stepped import Started, Step, SteppedEnvironment
from ludus.protocol.errors import InvalidParams, Unsupported
from ludus.protocol.integers import LARGEST_INTEGER

require("gymnasium", "1.4.0")

import gymnasium  # noqa: E402  # pyright: ignore[reportMissingImports]

ADAPTER: Final = "gymnasium"
"""The name under which unscored episodes are counted."""

OPTIONS: Final = frozenset({"split", "task", "index"})
"""The options of `reset`."""

MAX_CHARS: Final = 16_384
"""The most characters of a text, by default."""

LEAST_CHARS: Final = 100
"""The least `max_chars`, which the protocol sets."""

_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class LudusEnv(gymnasium.Env):  # type: ignore[misc]
    """One environment of a server, or of a server that this object starts and ends.

    Args:
        target: the address of a server, `http://…`; or what to serve while this object is open: NAME, `module:Class`,
            `file.py:Class` or `FORMAT:TARGET`, which needs `ludus-rl[server]`.
        environment: the environment's name, if the server has several.
        split: the split that tasks come from, unless `reset` names another; the first one when None.
        action: a declaration of a finite action space, such as `guess:number=1..100`; see `OneTool`. Any call when
            None.
        max_chars: the most characters of an observation and of a text in an action. Observations that
            are longer are cut, with a remark.
        token_variable: the environment variable that holds the trainer token of a server.
        python: the interpreter that serves a local target; this one when None.
        reconnect_seconds: how long a lost connection is tried again.
        render_mode: None; there is nothing to render.

    Raises:
        LudusError: the server cannot be reached or refuses the token, there is no such environment, or the action is
            declared wrongly.
        Unsupported: the environment has neither tools nor graded answers.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self,
        target: str,
        environment: str | None = None,
        *,
        split: str | None = None,
        action: str | None = None,
        max_chars: int = MAX_CHARS,
        token_variable: str = TOKEN_VARIABLE,
        python: str | None = None,
        reconnect_seconds: float = 30.0,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None:
            raise Unsupported(f"render_mode={render_mode!r}: there is nothing to render; leave it out")
        self._arguments: Final = {
            "target": target,
            "environment": environment,
            "split": split,
            "action": action,
            "max_chars": max_chars,
            "token_variable": token_variable,
            "python": python,
            "reconnect_seconds": reconnect_seconds,
        }
        if max_chars < LEAST_CHARS:
            raise InvalidParams(f"max_chars={max_chars}: an observation needs at least {LEAST_CHARS} characters")
        self._server: Final = None if _ADDRESS.match(target) else LocalServer([target], python)
        self._split: Final = split
        self._max_chars: Final = max_chars
        try:
            self._played: Final = SteppedEnvironment(
                ServerAddress(self._server.url if self._server else target, token_variable=token_variable),
                environment,
                adapter=ADAPTER,
                observation_chars=max_chars,
                reconnect_seconds=reconnect_seconds,
                token="" if self._server else None,  # a server of its own has none
            )
        except BaseException:
            self._end_server()
            raise
        try:
            self._actions: Final = actions_of(self._played.info, action, max_chars)
        except BaseException:
            self.close()
            raise
        self.action_space = self._actions.space
        self.observation_space = UnicodeText(max_chars)

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools, in the order of their numbers in actions."""
        return self._actions.tools

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """End the open episode, start another and return its prompt.

        Args:
            seed: the seed of the episode, which also draws the task. When None, it is drawn from the generator that an
                earlier seed has set.
            options: `split`, and `task` (an id) or `index` for a certain task.

        Returns:
            The prompt, and `task`, `split` and `seed` of the episode.

        Raises:
            InvalidParams: there is no such option, or the prompt has more than `max_chars` characters.
            Unsupported: the task has tools that the action space does not.
            LudusError: the episode could not be started.
        """
        super().reset(seed=seed)
        given = dict(options or {})
        if unknown := sorted(given.keys() - OPTIONS):
            raise InvalidParams(f"reset has no option {', '.join(map(repr, unknown))}; it has: split, task, index")
        split = given.pop("split", self._split)
        chosen = int(self.np_random.integers(LARGEST_INTEGER)) if seed is None else seed
        started = self._played.start(split=split, seed=chosen, **given)
        try:
            self._check(started)
        except BaseException:
            self._played.end()
            raise
        return started.text, {"task": started.task.id, "split": started.task.split, "seed": started.seed}

    def _check(self, started: Started) -> None:
        """Check that the spaces fit the episode."""
        if len(started.text) > self._max_chars:
            raise InvalidParams(
                f"the prompt of task {started.task.id} has {len(started.text)} characters; make the environment with "
                f"max_chars={len(started.text)} or more"
            )
        known = {tool.name for tool in self._played.info.tools}
        if more := sorted(tool.name for tool in started.tools if tool.name not in known):
            raise Unsupported(f"task {started.task.id} adds tools, which no action stands for: {', '.join(more)}")

    def step(self, action: Any) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Make the call, or submit the answer, that an action stands for.

        Returns:
            The observation, the reward, `terminated`, `truncated`, and what is for the trainer only: `error` (the code
            of a refusal or an empty text), `components`, `metadata` and `end_reason`.

        Raises:
            InvalidParams: the action is not in the action space.
            ResetNeeded: there is no open episode.
            LudusError: the episode is unscored; see `ludus.protocol.errors.EpisodeFailed`.
        """
        if not self._played.is_open:
            raise gymnasium.error.ResetNeeded("there is no open episode: call reset() first")
        decoded = self._actions.decode(action)
        taken = self._played.answer(decoded.text) if isinstance(decoded, Answer) else self._played.call(*decoded)
        return taken.text, taken.reward or 0.0, taken.terminated, taken.truncated, _info(taken)

    def close(self) -> None:
        """Close the open episode and the connection, and end the server that this object has started."""
        self._played.close()
        self._end_server()

    def _end_server(self) -> None:
        if self._server is not None:
            self._server.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return the arguments: a copy in another process connects itself and begins with `reset`."""
        return self._arguments

    def __setstate__(self, state: dict[str, Any]) -> None:
        LudusEnv.__init__(self, **state)


def _info(taken: Step) -> dict[str, Any]:
    return {
        "error": taken.error or "",
        "components": dict(taken.components),
        "metadata": dict(taken.metadata),
        "end_reason": str(taken.end_reason or ""),
    }
