from treasure import TreasureHunt

from ludus.testing import play


def test_the_oracle_earns_everything() -> None:
    with play(TreasureHunt) as hunt:
        assert hunt.oracle(index=3).reward == 1.0


def test_each_hole_lowers_the_reward() -> None:
    with play(TreasureHunt) as hunt:
        episode = hunt.start(index=3)
        assert "Only sand" in episode.dig(metre=episode.task.gold - 1).text
        episode.dig(metre=episode.task.gold)
        assert (episode.reward, episode.components) == (0.5, {"holes": 2.0})
