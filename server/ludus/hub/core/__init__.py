"""What the other parts of a hub stand on.

blobs.py           files by their SHA-256 digest; object_store.py keeps them in a bucket, downloads.py answers with them
hub_key.py         the hub's own key; secret_files.py: secrets that files hold
rates.py           how many requests an address, a name or a token may send; shared_rates.py: counts in the database
peers.py           the other processes of a hub
runner.py          the hub as a client of its endpoints
error_answers.py   errors as answers; request_times.py: how long requests took
toml_settings.py   files of settings
"""
