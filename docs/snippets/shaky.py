from treasure import TreasureHunt

from ludus.server import Noise, with_noise

USUAL = Noise(rate=0.05)
ROUGH = Noise(rate=0.1, kinds={"tool_error": 3.0, "lost_answer": 1.0, "delay": 1.0}, delay_seconds=2.0, seed=1)


class ShakyHunt(TreasureHunt):
    """Find the gold with tools that fail now and then."""

    noise = USUAL
    variants = {"rough": {"noise": ROUGH}, "calm": {"noise": None}}


RoughHunt = with_noise(TreasureHunt, ROUGH, name="rough_hunt")  # the same for a class from another package
