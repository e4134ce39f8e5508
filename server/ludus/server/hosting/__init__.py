"""The host of episodes: what transports call, over the rooms below.

host.py           `EpisodeHost`: start, step, grade, close
host_methods.py   requests about environments, tasks and worlds
dispatch.py       from a method's name to the host, after its scope and params are checked
places.py         how many episodes a server and each principal may have
forks.py          new episodes in the state of another; group_scores.py: episodes of a group, compared
trial.py          one episode of each environment before its server is announced
rescoring.py      rewards of stored trajectories, computed again
"""
