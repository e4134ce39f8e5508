"""The games of TextArena that work without a network and without an account, and their numbers of players."""

from __future__ import annotations

from typing import Dict, Tuple

_BY_PLAYERS: Dict[int, Tuple[str, ...]] = {
    1: (
        "2048-v0",
        "Bandit-v0",
        "Blackjack-v0",
        "Countdown-v0",
        "Crosswords-v0",
        "Cryptarithm-v0",
        "FifteenPuzzle-v0",
        "FrozenLake-v0",
        "GuessTheNumber-v0",
        "LightsOut-v0",
        "LogicPuzzle-v0",
        "Mastermind-v0",
        "Minesweeper-v0",
        "PegJump-v0",
        "RushHour-v0",
        "Secretary-v0",
        "Set-v0",
        "Slitherlink-v0",
        "Sokoban-v0",
        "Sudoku-v0",
        "ThreeCardMonte-v0",
        "TowerOfHanoi-v0",
    ),  # fmt: skip
    2: (
        "Alquerque-v0",
        "Battleship-v0",
        "Breakthrough-v0",
        "Briscola-v0",
        "Chopsticks-v0",
        "ColonelBlotto-v0",
        "ConnectFour-v0",
        "Crusade-v0",
        "GameOfPureStrategy-v0",
        "GermanWhist-v0",
        "Golf-v0",
        "HighSociety-v0",
        "IndianPoker-v0",
        "IteratedMatchingPennies-v0",
        "IteratedPrisonersDilemma-v0",
        "IteratedRockPaperScissors-v0",
        "IteratedTwoThirdsAverage-v0",
        "IteratedUltimatumGame-v0",
        "KuhnPoker-v0",
        "LiarsDice-v0",
        "LinesOfAction-v0",
        "MemoryGame-v0",
        "NewRecruit-v0",
        "Nim-v0",
        "Othello-v0",
        "PigDice-v0",
        "Poker-v0",
        "QuantumTicTacToe-v0",
        "SantoriniBaseFixed-v0",
        "SimpleBlindAuction-v0",
        "SimpleNegotiation-v0",
        "SimpleTak-v0",
        "Snake-v0",
        "SpiteAndMalice-v0",
        "Stratego-v0",
        "Surround-v0",
        "Tak-v0",
        "TicTacToe-v0",
        "TruthAndDeception-v0",
        "TwoDollar-v0",
        "UltimateTicTacToe-v0",
        "WildTicTacToe-v0",
    ),  # fmt: skip
    3: (
        "MarketEntryGame-v0",
        "PublicGoodsGame-v0",
        "ThreePlayerGOPS-v0",
        "ThreePlayerIPD-v0",
        "ThreePlayerTicTacToe-v0",
    ),  # fmt: skip
    4: (
        "SettlersOfCatan-v0",
        "Taboo-v0",
    ),  # fmt: skip
    6: ("SecretMafia-v0",),  # fmt: skip
}
GAMES: Dict[str, int] = {name: players for players, names in _BY_PLAYERS.items() for name in names}
"""Numbers of players by id. Where a game is played by several numbers, it is the smallest that makes it a game."""
