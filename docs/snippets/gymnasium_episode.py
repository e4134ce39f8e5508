import gymnasium  # pyright: ignore[reportMissingImports]
import ludus_guess_number  # pyright: ignore[reportMissingImports] # noqa: F401 (it registers the environment)

env = gymnasium.make("ludus/guess_number-v0")
observation, info = env.reset(seed=7)
observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
env.close()
