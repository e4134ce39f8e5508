"""Running the author's code: threads, clocks that exclude waiting, and who is to blame for an error."""
