"""Results of runs on published versions: reported by those who evaluated, or played where the hub scores them.

figures.py    what counts on a board, and the statistics
store.py      boards, runs and episodes in the database
boards.py     boards, computed from the runs
played.py     played runs: registration, episodes, deadlines
episodes.py   the hub as the client of a run's endpoint, whose episodes it starts and reads
reported.py   uploads of evaluations; rollouts.py: their trajectories, rollout_index.py: where each begins
receipts.py   signed receipts of played runs
personal.py   what an export and a deletion of an account mean for results
routes.py     the JSON API; access.py: who may do what in it
processes.py  which process of a hub plays which episodes
mounting.py   adds all of it to the hub's application
"""
