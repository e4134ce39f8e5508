"""TextArena games: one tool `act`, whose text is the agent's move; the other players are scripted; a task is a seed.

How this works:

- An episode is TextArena's own loop: the player that the game names next sees its observation and says something.
  Opponents answer at once, until it is the agent's turn or the game ends. The reward is the agent's part of the game's
  rewards.
- The games draw from Python's global random generator. Its state belongs to the episode: it is put in place for each
  call and kept afterwards, so that equal seeds give equal games also where episodes share a process.
"""

from __future__ import annotations

import contextlib
import difflib
import random
import re
import threading
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Dict, Iterator, List, Tuple

from .adapter import Adapter, HostedEpisode, MissingPackage, NotUsable, description, need, split, tool, tool_errors
from .textarena_games import GAMES
from .values import number, plain, result

TEST_TASKS = 1000
TEST_SEEDS = 1_000_000_000
"""The first seed of the test split; those of the train split count from 0."""
MOST_TURNS = 200
"""The most turns of opponents between two of the agent."""
ENDED_EARLY = "The game has ended before your first turn. Call the tool `act` with any text to learn how."
NO_MOVE = "[pass]"
"""What an opponent says if its observation shows no move."""

_MOVES = re.compile(r"\[[^\[\]\n]{1,60}\]")
_HEADING = re.compile(r"\b(?:available|valid|legal|possible|allowed)\b[^\n]*\b(?:moves?|actions?)\b", re.IGNORECASE)
_GLOBAL_RANDOM = threading.Lock()


class TextArenaAdapter(Adapter):
    """The games that a target names: one id, several with `+` between them, or `all`."""

    def __init__(self, target: str, options: Dict[str, Any]) -> None:
        super().__init__(target, options)
        self.arena = need("textarena")
        self.registry = need("textarena.envs.registration", "textarena").ENV_REGISTRY
        self.arguments = dict(options.get("make") or {})
        self.player = int(options.get("player", 0))
        self.games = {name: self._players(name) for name in self._names()}
        if len(self.games) != 1 and (self.arguments or options.get("players")):
            raise NotUsable("the options make and players are for one game: write textarena:ID#…")
        for name, players in self.games.items():
            if self.player >= players and target != "all":
                raise NotUsable(
                    f"{name} has the players 0 to {players - 1}, so the option player cannot be {self.player}"
                )
            if target != "all":
                self._try(name, players)
        self.games = {name: players for name, players in self.games.items() if self.player < players}

    def _names(self) -> List[str]:
        if self.target == "all":
            return [name for name in GAMES if name in self.registry]
        names = self.target.split("+")
        for name in names:
            if name not in self.registry:
                near = difflib.get_close_matches(name, list(self.registry), 1)
                raise NotUsable(
                    f"TextArena has no game {name!r}{f'; did you mean {near[0]!r}?' if near else ''}; it has "
                    f"{len(self.registry)}, such as TicTacToe-v0; `textarena:all` serves {len(GAMES)} that work"
                )
        return names

    def _players(self, name: str) -> int:
        if self.options.get("players"):
            return int(self.options["players"])
        entry = str(self.registry[name].entry_point)
        for known, players in GAMES.items():
            if known == name or (known in self.registry and str(self.registry[known].entry_point) == entry):
                return players
        return 2

    def _try(self, name: str, players: int) -> None:
        """Make a game once.

        Raises:
            NotUsable: that fails.
        """
        try:
            self.make(name, players, 0)
        except NotUsable:
            raise
        except (Exception, SystemExit) as error:
            said = next((line for line in str(error).splitlines() if line.strip(" *")), "")
            raise NotUsable(
                f"TextArena's game {name} does not work here with {players} players: "
                f"{type(error).__name__}: {said.strip()}"
            ) from None

    def make(self, name: str, players: int, seed: int) -> Any:
        """Make a game and reset it with a seed."""
        with _GLOBAL_RANDOM:
            state = random.getstate()
            try:
                random.seed(seed)
                env = self.arena.make(name, **self.arguments)
                env.reset(num_players=players, seed=seed)
            finally:
                random.setstate(state)
        return env

    def describe(self) -> List[Dict[str, Any]]:
        try:
            release = version("textarena")
        except PackageNotFoundError:
            raise MissingPackage("textarena") from None
        act = tool("act", "Make a move.", {"action": {"type": "string", "description": "the move, as the game asks"}})
        return [
            description(
                name,
                f"The TextArena game {name}, played as player {self.player} of {players}.",
                [split("train", None), split("test", TEST_TASKS)],
                [act],
                version=release,
                package=f"textarena {release}",
                forkable=True,
                not_promised=self._not_promised(players),
            )
            for name, players in self.games.items()
        ]

    def _not_promised(self, players: int) -> Dict[str, str]:
        if players == 1:
            return {}
        text = self.options.get("opponent_text")
        says = "chooses at random, by the seed, among the moves that its observation shows"
        if text is not None:
            says = f"always says {text!r}"
        return {"good opponents": f"each opponent {says}; if that is invalid, the game may count it as the agent's win"}

    def task(self, environment: str, split: str, index: int) -> Dict[str, Any]:
        seed = index + (TEST_SEEDS if split == "test" else 0)
        return {"id": f"seed-{seed}", "private": {"seed": seed}}

    def open(self, environment: str, task: Dict[str, Any], seed: int) -> HostedEpisode:
        return Game(self, environment, task["private"]["seed"])


class Game(HostedEpisode):
    """One game, from the agent's first turn on."""

    def __init__(self, adapter: TextArenaAdapter, name: str, seed: int) -> None:
        self._me = adapter.player
        self._options = adapter.options
        self._text = adapter.options.get("opponent_text")
        self._full = adapter.options.get("history") == "full"
        self._seed = seed
        self._opponents: Dict[int, random.Random] = {}
        self._shown = ""
        self._random = random.Random(seed).getstate()
        with self._own_random():
            random.seed(seed)
            self._env = adapter.arena.make(name, **adapter.arguments)
            self._env.reset(num_players=adapter.games[name], seed=seed)
            self._ended, observation = self._turn(False)
        self.prompt = ENDED_EARLY if self._ended else self._new(observation)

    def call(self, tool: str, arguments: Dict[str, Any]) -> Dict[str, Any]:
        with self._own_random():
            if not self._ended:
                with tool_errors(self._options):
                    done, _ = self._env.step(action=arguments["action"])
                self._ended, observation = self._turn(done)
                if not self._ended:
                    return result(self._new(observation))
            rewards, game_info = self._env.close()
        if not rewards or self._me not in rewards:
            raise ValueError(f"the game ended without a reward of player {self._me}: {rewards!r}")
        facts = dict((game_info or {}).get(self._me) or {})
        text = str(facts.get("reason") or "")
        return result(
            f"The game has ended. {text}".strip(),
            reward=number(rewards[self._me], "the reward"),
            finished=True,
            metadata=facts,
        )

    def _turn(self, done: bool) -> Tuple[bool, str]:
        """Let the opponents act until it is the agent's turn or the game ends."""
        for _ in range(MOST_TURNS):
            if done:
                return True, ""
            player, observation = self._env.get_observation()
            shown = observation if isinstance(observation, str) else str(plain(observation, "the observation"))
            if player == self._me:
                return False, shown
            done, _ = self._env.step(action=self._opponent(player, shown))
        raise ValueError(f"the agent had no turn within {MOST_TURNS} turns of the others")

    def _opponent(self, player: int, observation: str) -> str:
        if self._text is not None:
            return str(self._text)
        if player not in self._opponents:
            self._opponents[player] = random.Random(f"{self._seed}/{player}")
        roles = {f"[{role}]" for role in self._env.state.role_mapping.values()} | {"[GAME]"}
        return self._opponents[player].choice(moves_of(observation, roles))

    def _new(self, observation: str) -> str:
        """Return what an observation shows that the last one did not; all of it if it shows something else."""
        last, self._shown = self._shown, observation
        if self._full or not last or not observation.startswith(last) or observation == last:
            return observation
        return observation[len(last) :]

    @contextlib.contextmanager
    def _own_random(self) -> Iterator[None]:
        with _GLOBAL_RANDOM:
            other = random.getstate()
            random.setstate(self._random)
            try:
                yield
            finally:
                self._random = random.getstate()
                random.setstate(other)


def moves_of(observation: str, roles: Any) -> List[str]:
    """Return the moves in brackets after the last heading such as "Available moves"; without one, all in the text."""
    headings = list(_HEADING.finditer(observation))
    for text in (observation[headings[-1].start() :] if headings else observation, observation):
        found = [move for move in dict.fromkeys(_MOVES.findall(text)) if move not in roles]
        if found:
            return found
    return [NO_MOVE]


ADAPTER = TextArenaAdapter
