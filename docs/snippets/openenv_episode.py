from guess_number import GuessNumberAction, GuessNumberEnv  # pyright: ignore[reportMissingImports]

with GuessNumberEnv(base_url="http://127.0.0.1:8000").sync() as env:
    result = env.reset(seed=7)
    result = env.step(GuessNumberAction(tool="guess", arguments={"number": 5}))
    print(result.observation.text, result.reward, result.done)
