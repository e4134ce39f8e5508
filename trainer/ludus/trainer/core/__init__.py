"""What every part of the trainer shares.

config.py             the settings as types, with config_base.py and config_learning.py; settings.py reads and writes
                      them
schema.py             their JSON schema
samples.py            what rollouts give to the learner
checkpoints.py        what a run keeps; stopping.py: how it is asked to stop
frozen.py             frozen policies; opponents.py: the pool of them that self-play draws from
probe.py              the text with which engines and exports are compared with the learner
tiny.py               a tiny model of random weights; trajectory_files.py: demonstrations
errors.py             the error tree
"""
