"""Running the author's code.

threads.py     threads, shared fairly between environments
clock.py       deadlines that exclude waiting for a thread
user_code.py   calls of the author's code, and who is to blame for an error; errors.py: how a tool refuses a call
"""
